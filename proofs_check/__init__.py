"""Checks: the paper's claims (`packedss prove`), and the decoders, schedules and rules that others bring.

check_schedule    the battery on a schedule           assert_exact   the same, for pytest
check_acceptance  an acceptance rule by itself        check_drafter  draft tokens against the laws declared for them
check_trace       a decoder's log against the rules
"""

from proofs_check.acceptance import check_acceptance
from proofs_check.battery import assert_exact, check_schedule
from proofs_check.drafter import check_drafter
from proofs_check.trace_check import check_trace

__all__ = ["assert_exact", "check_acceptance", "check_drafter", "check_schedule", "check_trace"]
