"""Graph substitutions: rewrite rules of networks, generated from operator specifications and proved from axioms.

``operators`` holds one specification per operator; ``generate`` finds candidate rules by evaluating all small
expressions in finite fields; ``axioms`` and ``prove`` decide which of them hold; ``rules`` stores them.
"""
