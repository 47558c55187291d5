"""The paper's claims, definitions and protocol by id: the vocabulary of test markers, checks, reports and SPEC.md.

>>> from spec.claims import CLAIMS
>>> CLAIMS["LEMB2"].statement, CLAIMS["LEMB2"].assumptions
('Two Packed-SS passes that begin at c verified tokens end at F(c) or beyond.', ('ASM3.1',))
"""

from __future__ import annotations

from typing import NamedTuple


class Claim(NamedTuple):
    """One id of the paper."""

    id: str
    kind: str  # C: a claim to be checked, D: a definition, P: protocol of the paper's experiments
    section: str  # of the paper, several separated by ", "
    assumptions: tuple[str, ...]  # ids of what must hold, or of the setting, for the statement to be made
    statement: str  # one sentence, in our words


_ROWS = """\
COST | D | 1 | - | A call of n rows costs tau + delta n: 2tau+2deltaW, tau+deltaW^2 or tau+2deltaW an iteration.
EQ1 | D | 3.1 | - | v_t^(i) is the verifier's argmax after P_{t-1} and the first i-1 draft tokens, i = 1..|D_{t-1}|+1.
EQ2 | D | 3.1 | - | h_t is the number of leading draft tokens that equal the verifier's predictions.
EQ3 | D | 3.1 | - | Z_t is the drafter's argmax at the W positions after P_{t-1}, made in the same call.
EQ4 | D | 3.1 | - | D_t is what is left of Z_t beyond its first A_t tokens.
ALG1.L1 | D | 3.1 | - | Begin with the prompt as the verified prefix and an empty draft.
ALG1.L2 | D | 3.1 | - | Go on while fewer than L tokens are out and the last one, if any, is not EOS.
ALG1.L3 | D | 3.1 | - | Predict every draft position and one more, each given the draft before it.
ALG1.L4 | D | 3.1 | - | In the same call, propose W tokens from the prefix alone.
ALG1.L5 | D | 3.1 | - | Count the leading matches.
ALG1.L6 | D | 3.1 | - | Accept them and the verifier's token after them: A_t = h_t + 1.
ALG1.L7 | D | 3.1 | - | a is the earliest of block end, room under L and first EOS in the block.
ALG1.L8 | D | 3.1 | - | Cut the block to its first a tokens.
ALG1.L9 | D | 3.1 | - | Append the block to the prefix.
ALG1.L10 | D | 3.1 | - | Keep the proposals beyond the first a as the next draft.
ALG1.L11 | D | 3.1 | - | Count the call.
ALG1.L12 | D | 3.1 | - | End of the loop.
ALG1.L13 | D | 3.1 | - | Return the prefix, prompt included.
PROGRESS | C | 3.1, B.1, C | - | Each call that verifies accepts a token, so Algorithms 1, 2 and 3 terminate.
STOP | C | 3.1, B.1, C | - | EOS in a block and the limit L cut the output there, refund no call; L = 0 makes no call.
DRAFTLEN | C | 3.1 | - | A call that goes on keeps max(0, W - A) <= W - 1 tokens (W after a `wide` or `sampled` start).
BRANCH0 | C | 3.1 | - | Packed-SS is Quadratic-SS with no branch but that of zero accepted draft tokens.
ASM3.1 | D | 3.1 | - | From c < k verified tokens k is drafted right iff c >= c*_k, c*_k <= k, at all c a schedule meets.
THM3.2 | C | 3.1, B.1 | ASM3.1 | After 2t calls Packed-SS is where t iterations of Linear-SS are, or further.
EQ5 | C | 3.1, B.1 | ASM3.1 | NFE_packed(L) <= NFE_linear(L) for every L and W >= 1, under EOS too, same start.
THM3.3 | C | 3.2, B.2 | - | The continuation has the AR model's law, stopped at the first EOS or at L.
SPARSEQ | C | 3.2 | - | Storing only the nonzero entries of Q changes nothing.
EQ6 | D | B.1 | - | F(c) = min(c + W + 1, the first k > c with c*_k > c).
LEMB1 | C | B.1 | ASM3.1 | F is nondecreasing, and F(c) is where drafting W tokens at c and verifying them ends.
LEMB2 | C | B.1 | ASM3.1 | Two Packed-SS passes that begin at c verified tokens end at F(c) or beyond.
ALG2.L1 | D | B.2 | - | Begin with the prompt as the verified prefix, an empty draft and no stored laws.
ALG2.L2 | D | B.2 | - | Go on as in Algorithm 1.
ALG2.L3 | D | B.2 | - | Evaluate the target law at every draft position and one more, each given the draft before it.
ALG2.L4 | D | B.2 | - | In the same call, evaluate W proposal laws from the prefix alone.
ALG2.L5 | D | B.2 | - | For draft token d^(i): a fresh uniform u_i, and alpha_i = min(1, p(d)/Q(d)) by its stored law.
ALG2.L6 | D | B.2 | - | h_t is the number of leading tests with u_i < alpha_i.
ALG2.L7 | D | B.2 | - | Draw one token from the normalised [p - Q]+ after a rejection, from p after the whole draft.
ALG2.L8 | D | B.2 | - | The block is the accepted draft tokens and that token: A_t = h_t + 1.
ALG2.L9 | D | B.2 | - | a is the earliest of block end, room under L and first EOS in the block.
ALG2.L10 | D | B.2 | - | Cut the block to its first a tokens.
ALG2.L11 | D | B.2 | - | Append the block to the prefix.
ALG2.L12 | D | B.2 | - | Keep the proposal laws beyond the first a, and draw a token from each.
ALG2.L13 | D | B.2 | - | These tokens are the next draft.
ALG2.L14 | D | B.2 | - | Count the call.
ALG2.L15 | D | B.2 | - | End of the loop.
ALG2.L16 | D | B.2 | - | Return the prefix, prompt included.
LEMB3 | C | B.2 | EQ7 | Accept-or-correct emits the target law for one token.
EQ7 | C | B.2 | - | Given all that decides whether it is checked, a draft token still has its stored law.
LEMB4 | C | B.2 | - | EQ7 holds at every position that verification reaches.
COR-GREEDY | C | B.2 | - | With point masses and fixed tie-breaking, Algorithm 1 returns the AR greedy output.
EQ8 | D | C | - | At rank r the verifier sees the accepted pairs and the draft pairs of earlier ranks.
ALG3.L1 | D | C | - | Begin with no accepted pairs, no draft, and E = L as the last position to generate.
ALG3.L2 | D | C | - | Go on until every position up to E is accepted.
ALG3.L3 | D | C | - | l is the leftmost unresolved position.
ALG3.L4 | D | C | - | U_t is the unresolved among the W positions from l, none beyond E.
ALG3.L5 | D | C | - | Fix an order pi_t of U_t from what was known before the call.
ALG3.L6 | D | C | - | kappa_t is the number of leading ranks that have a draft token.
ALG3.L7 | D | C | - | Predict the ranks up to kappa_t and one more, if there is one.
ALG3.L8 | D | C | - | In the same call, propose a token at every position of U_t from the accepted pairs alone.
ALG3.L9 | D | C | - | h_t is the number of leading ranks whose draft equals the prediction.
ALG3.L10 | D | C | - | Accept them and the prediction after them, if there is one: A_t = min(h_t + 1, u_t).
ALG3.L11 | D | C | - | An accepted EOS at position j lowers E to j.
ALG3.L12 | D | C | - | Remove accepted pairs beyond E, old and new.
ALG3.L13 | D | C | - | Append the new pairs in verification order.
ALG3.L14 | D | C | - | J_t is what of U_t is still unresolved and not beyond E.
ALG3.L15 | D | C | - | The proposals at J_t are the next draft.
ALG3.L16 | D | C | - | Count the call.
ALG3.L17 | D | C | - | End of the loop.
ALG3.L18 | D | C | - | Return the prompt and the tokens of positions 1..E in textual order.
PROPC1 | C | C | - | Algorithm 3 returns what serial greedy decoding under the same orders and group sizes returns.
LAYD1 | D | D.1 | - | Nemotron, packed: [last, D, MASK.. | last, MASK^W] under diag(T_B, J_B), after the cached prefix.
LAYQ | D | D.1-D.3 | - | Quadratic-SS: verifier rows, then a block [d_b, MASK^W] per branch b that sees those before d_b.
PAD | C | D.1 | LAYD1 | Verifier rows over MASK padding can never extend acceptance.
LAYD2 | D | D.2 | - | SetDLM, packed: [N|O|M|R]; O_r, M_r see the drafted earlier ranks of O, every row sees N and itself.
TAB2 | C | D.3 | LAYD1 LAYQ LAYD2 | Rows an iteration: 2B, B(B+1), 2B; SetDLM p+3u, p+2u+u^2, p+3u.
INIT | P | E.2 | - | Starts: first call drafts W+1; prompt call emits a token, then a drafting call; counted prompt call.
STOPSEQ | P | E.2 | - | An end marker counts once all its tokens are accepted; E is its last position; the earliest wins.
NFE-CONV | P | 3.1, E.2, E.5, F.2 | - | Every forward pass counts, the prompt's too; compare schedules under one start.
CONF | P | E.6 | - | Confidence order: by falling score known before the call, ties by position, unscored positions last.
NATIVE | P | E.6 | - | SetDLM's own decoder accepts the active positions at or above 0.9, or else the most confident one.
LORA | P | F.2 | - | A proposal-only adapter is computed for every row of its call and applied to proposal rows alone.
METRICS | P | 4, E.5, F.3 | - | Tokens/NFE, time/NFE and throughput are ratios of totals; wall time is device-synchronised.
BOOT | P | E.5 | - | Paired bootstrap over prompts: 20,000 resamples, 95 % percentile intervals, repeats together.
PROTO | P | 4, E.1-E.4, F.1, F.3 | - | Batch 1; models, precisions, prompt sets, caps and repeats of the experiments.
"""


def _claim(id: str, kind: str, section: str, assumptions: str, statement: str) -> Claim:
    return Claim(id, kind, section, () if assumptions == "-" else tuple(assumptions.split()), statement)


TABLE = tuple(_claim(*row.split(" | ", 4)) for row in _ROWS.splitlines())
CLAIMS = {claim.id: claim for claim in TABLE}
