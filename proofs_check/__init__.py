"""Checks: the paper's claims (`packedss prove`), and what others bring.

check_schedule    the battery on a schedule           assert_exact   the same, for pytest
check_acceptance  an acceptance rule by itself        check_drafter  draft tokens against the laws declared for them
check_any_order   the battery on an any-order schedule   check_order      its order policy by itself
check_trace       a decoder's log against the rules
check_decoder     an opaque decoder against a model   check_outputs  logged outputs against a model
"""

from proofs_check.acceptance import check_acceptance
from proofs_check.any_order_battery import check_any_order
from proofs_check.any_order_policy import check_order
from proofs_check.battery import assert_exact, check_schedule
from proofs_check.decoder import check_decoder
from proofs_check.drafter import check_drafter
from proofs_check.outputs import check_outputs
from proofs_check.trace_check import check_trace

__all__ = [
    "assert_exact",
    "check_acceptance",
    "check_any_order",
    "check_decoder",
    "check_drafter",
    "check_order",
    "check_outputs",
    "check_schedule",
    "check_trace",
]
