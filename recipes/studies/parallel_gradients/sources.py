"""placeholder"""
def report_sources(paths): return ""
