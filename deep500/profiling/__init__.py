"""Profiles: which node takes the time of a step, in every framework, and what no node explains."""

from typing import TYPE_CHECKING

from deep500.faces import load_when_used

if TYPE_CHECKING:
    from deep500.profiling.measuring import profile_network as profile_network
    from deep500.profiling.page import write_page as write_page
    from deep500.profiling.profile import FrameworkProfile as FrameworkProfile
    from deep500.profiling.profile import Profile as Profile
    from deep500.profiling.profile_file import read_profile as read_profile
    from deep500.profiling.profile_file import write_profile as write_profile
    from deep500.profiling.table import profile_table as profile_table
    from deep500.profiling.trace import trace_events as trace_events

load_when_used(__name__)
