(* Pathwise dominance without ASM3.1: how much of it survives for an arbitrary drafter, and what exactly is needed.

   A drafter is here any matrix of rights and wrongs. Its reach at c is where drafting W tokens from c verified ones and
   verifying them ends; under ASM3.1 it is F(c) (LEMB1). The contexts are l_j, the verified tokens of Linear-SS before its j-th
   iteration, j = 0, 1, ..., and those of Packed-SS before each call: in step with Linear-SS after an even number of calls
   (not counting the opening call, if the start has one), else out of step. In plain words:

     LEMB2      Two calls of Packed-SS from c end at reach c or beyond, whatever the drafter. Exactly at it, if the first
                of the two stays short of it.
     ASM-REACH  THM3.2 needs only this: whenever l_j <= a_s < N, then reach (l_j), or N if that is less, is at most
                reach (a_s), where N is the stop and a_s the contexts of Packed-SS in step with Linear-SS. Every other pair of
                contexts may do as it likes. It is as good to ask it of the contexts out of step instead. ASM3.1 implies
                both; a drafter is given that meets both and not ASM3.1.
     ASM-NEEDED Without it drafters exist for which Packed-SS needs more calls, with W = 3 or W = 4. For W <= 2 there are none:
                THM3.2 then holds for every drafter.
     BOUND-2D   NFE_packed <= NFE_linear + max(0, min(2e, 2o - 1)) for every drafter, e and o the numbers of contexts of
                Packed-SS before the stop, in and out of step, whose reach is below that of a context of Linear-SS which is not
                longer, reach beyond the stop read as the stop. (reach l_j is l_{j+1}: so, below Linear-SS's next context.) So
                also NFE_packed <= NFE_linear + 2d, d the contexts in step with a reach below that of any shorter context. For
                every d there is a drafter with e = d that attains 2e.
     BOUND-RATIO
                2 NFE_packed <= max(2, W) NFE_linear for every drafter, and from W = 3 on no smaller factor than W / 2 does.
     THM3.2     When the two schedules stay level: at every second call, for ever, if and only if no call of Packed-SS in
                between gets as far as reach a_s. No assumption.

   Beyond the paper, except LEMB2 and THM3.2, which are its claims with fewer assumptions. Starts and stops as in
   Dominance.v, and so are the tags `claim` and `refuted`. *)

From Coq Require Import Arith Bool Lia List.
From packedss Require Import Dominance.
Import ListNotations.

(* ---------------------------------------------------------------- LEMB2 without an assumption *)

(* claim: LEMB2 *)
Theorem LEMB2_any_drafter M W s : reach M W (verified s) <= verified (step M (Both W) (step M (Both W) s)).
Proof. apply two_calls; auto. Qed.

(* What two calls do exactly, for every way in which a schedule here drafts and then verifies. *)
Lemma two_calls_exactly M W k1 k2 s :
  k1 = Draft W \/ k1 = Both W -> verifies k2 = true ->
  verified (step M k1 s) < reach M W (verified s) ->
  verified (step M k2 (step M k1 s)) = reach M W (verified s).
Proof.
  intros H1 H2 H3. pose proof (two_calls M W k1 k2 s H1 H2) as Lower. apply Nat.le_antisymm; [|exact Lower].
  pose proof (step_monotone M k1 s) as Mo. set (s' := step M k1 s) in *.
  assert (E : context s' = verified s /\ upto s' = verified s + W) by (destruct H1; subst k1; now simpl).
  destruct E as [Ec Eu].
  replace (verified (step M k2 s')) with (accept M s') by (destruct k2; simpl in *; congruence).
  unfold accept, reach, draft_length in *. rewrite Ec, Eu.
  pose proof (leading_bound (M (verified s)) (verified s') (verified s + W - verified s')) as B.
  destruct (Nat.lt_ge_cases (leading (M (verified s)) (verified s) W) W) as [Hw|Hw]; [|lia].
  pose proof (leading_wrong _ _ _ Hw) as R.
  destruct (Nat.le_gt_cases (verified s' + leading (M (verified s)) (verified s') (verified s + W - verified s'))
                            (verified s + leading (M (verified s)) (verified s) W)) as [|Hgt]; [lia|].
  rewrite (leading_right _ (verified s') (verified s + W - verified s')) in R by lia. discriminate.
Qed.

(* claim: LEMB2 *)
Theorem LEMB2_exactly M W s :
  verified (step M (Both W) s) < reach M W (verified s) <->
  verified (step M (Both W) (step M (Both W) s)) = reach M W (verified s).
Proof.
  split; [apply two_calls_exactly; auto|]. intros H.
  pose proof (verifying_gains M (Both W) (step M (Both W) s) eq_refl). lia.
Qed.

(* ---------------------------------------------------------------- The contexts that matter *)

(* Packed-SS before call n after the opening, and Linear-SS before iteration j; so a_s is c (2 * s). *)
Definition c M W st n := pos M (packed W st) (opening st + n).
Definition l M W st j := pos M (linear W st) (opening st + 2 * j).

Lemma l_next M W st j : l M W st (S j) = reach M W (l M W st j).
Proof. apply (proj2 (linear_iteration M W st j)). Qed.

Lemma c_next M W st n : reach M W (c M W st n) <= c M W st (S (S n)).
Proof. apply packed_two_calls. Qed.

Lemma c_start M W st : c M W st 0 = l M W st 0.
Proof. unfold c, l. rewrite !Nat.add_0_r. apply same_opening. Qed.

Lemma c_monotone M W st n m : n <= m -> c M W st n <= c M W st m.
Proof. intros. apply pos_monotone. lia. Qed.

(* From the second call after the opening on, each call of Packed-SS gains a token. *)
Lemma c_gains M W st n : c M W st (S n) < c M W st (S (S n)).
Proof.
  unfold c. rewrite (Nat.add_succ_r _ (S n)). apply pos_gains.
  rewrite Nat.add_succ_r, (proj2 (packed_cycle W st n)). reflexivity.
Qed.

Lemma c_exactly M W st n :
  c M W st (S n) < reach M W (c M W st n) <-> c M W st (S (S n)) = reach M W (c M W st n).
Proof.
  split; [|intros <-; apply c_gains].
  destruct (packed_cycle W st n) as [D B]. unfold c, pos. rewrite !Nat.add_succ_r. cbn [after]. rewrite B.
  now apply two_calls_exactly.
Qed.

Lemma c_at_least M W st n : n <= c M W st n + 1.
Proof. destruct n as [|n]; [lia|]. induction n; [lia|]. pose proof (c_gains M W st n). lia. Qed.

Lemma l_at_least M W st j : j <= l M W st j.
Proof. induction j; [lia|]. rewrite l_next. unfold reach. lia. Qed.

(* Linear-SS is done only after whole iterations. *)
Lemma linear_NFE M W st eos L :
  stop eos L = 0 \/ exists J, stop eos L <= l M W st J /\ opening st + 2 * J <= NFE M (linear W st) eos L.
Proof.
  destruct (NFE_least M (linear W st) eos L (linear_busy W st)) as [A _].
  destruct (calls_split (opening st) (NFE M (linear W st) eos L)) as [H|[J [H|H]]].
  - left. assert (E : NFE M (linear W st) eos L = 0) by (destruct st; simpl in H; lia).
    rewrite E in A. exact (proj1 (Nat.le_0_r _) A).
  - right. exists J. rewrite H in A. unfold l. lia.
  - right. exists J. rewrite H, (proj1 (linear_iteration M W st J)) in A. unfold l. lia.
Qed.

(* If Packed-SS has got to the stop n calls after the opening, that bounds its calls. *)
Lemma packed_NFE M W st eos L n : stop eos L <= c M W st n -> NFE M (packed W st) eos L <= opening st + n.
Proof. intros. apply NFE_iff; [apply packed_busy|assumption]. Qed.

Lemma nothing_to_do M W st eos L : stop eos L = 0 -> NFE M (packed W st) eos L = 0.
Proof. intros H. enough (NFE M (packed W st) eos L <= 0) by lia. apply NFE_iff; [apply packed_busy|]. rewrite H. lia. Qed.

(* ---------------------------------------------------------------- Counting the contexts whose reach is too short *)

(* Before the stop N, reach has shrunk from the context c' to the longer (or equal) context c'', by what still matters. *)
Definition shrinks (M : matrix) (W N c' c'' : nat) : bool :=
  (c' <=? c'') && (reach M W c'' <? Nat.min N (reach M W c')).

(* The context of call n has a reach below that of a context of Linear-SS that is not longer. *)
Definition shrunk (M : matrix) (W : nat) (st : start) (N n : nat) : bool :=
  (c M W st n <? N) && existsb (fun j => shrinks M W N (l M W st j) (c M W st n)) (seq 0 N).

(* ... or below that of any shorter context, visited or not. *)
Definition shrunk_from_any (M : matrix) (W : nat) (st : start) (N n : nat) : bool :=
  (c M W st n <? N) && existsb (fun c' => reach M W (c M W st n) <? reach M W c') (seq 0 (c M W st n)).

(* e and o: how many of the contexts of calls i, i + 2, ... are of that kind; i = 0 is in step, i = 1 out of step. There are no
   more than N of them before the stop. *)
Definition count (bad : nat -> bool) (i N : nat) : nat := length (filter (fun s => bad (i + 2 * s)) (seq 0 N)).

Lemma shrunk_false M W st N n j :
  c M W st n < N -> shrunk M W st N n = false -> l M W st j <= c M W st n ->
  Nat.min N (reach M W (l M W st j)) <= reach M W (c M W st n).
Proof.
  intros Hn H Hj. unfold shrunk in H. destruct (Nat.ltb_spec (c M W st n) N); [|lia]. simpl in H.
  destruct (Nat.le_gt_cases (Nat.min N (reach M W (l M W st j))) (reach M W (c M W st n))) as [|Hgt]; [assumption|].
  exfalso. enough (E : existsb (fun j => shrinks M W N (l M W st j) (c M W st n)) (seq 0 N) = true) by congruence.
  apply existsb_exists. exists j. split.
  - apply in_seq. pose proof (l_at_least M W st j). lia.
  - unfold shrinks. now apply andb_true_iff; split; [apply Nat.leb_le|apply Nat.ltb_lt].
Qed.

Lemma shrunk_shrunk_from_any M W st N n : shrunk M W st N n = true -> shrunk_from_any M W st N n = true.
Proof.
  unfold shrunk, shrunk_from_any. rewrite !andb_true_iff. intros [H1 H2]. split; [assumption|].
  apply existsb_exists in H2 as (j & _ & H2). unfold shrinks in H2.
  rewrite andb_true_iff, Nat.leb_le, Nat.ltb_lt in H2. destruct H2 as [H2 H3].
  apply existsb_exists. exists (l M W st j). rewrite in_seq, Nat.ltb_lt. split; [|lia].
  destruct (Nat.eq_dec (l M W st j) (c M W st n)) as [E|]; [rewrite E in H3|]; lia.
Qed.

Lemma count_le bad bad' i N : (forall n, bad n = true -> bad' n = true) -> count bad i N <= count bad' i N.
Proof.
  intros H. unfold count. induction (seq 0 N) as [|s ss IH]; [reflexivity|]. cbn [filter].
  specialize (H (i + 2 * s)). destruct (bad (i + 2 * s)), (bad' (i + 2 * s)); cbn [length]; lia || discriminate (H eq_refl).
Qed.

Lemma count_S bad i N : count bad i (S N) = count bad i N + if bad (i + 2 * N) then 1 else 0.
Proof.
  unfold count. rewrite seq_S, filter_app, app_length. cbn [filter Nat.add].
  destruct (bad (i + 2 * N)); reflexivity.
Qed.

Lemma count_later bad i T t : count bad (i + 2 * T) t <= count bad i (T + t).
Proof.
  induction t as [|t IH]; [unfold count; simpl; lia|]. rewrite Nat.add_succ_r, !count_S.
  replace (i + 2 * T + 2 * t) with (i + 2 * (T + t)) by lia. lia.
Qed.

(* Beyond the stop no context counts, so counting on adds nothing. *)
Lemma count_capped M W st N i t : count (shrunk M W st N) i t <= count (shrunk M W st N) i N.
Proof.
  assert (H : forall s, N <= s -> shrunk M W st N (i + 2 * s) = false).
  { intros s Hs. unfold shrunk. destruct (Nat.ltb_spec (c M W st (i + 2 * s)) N) as [Hc|]; [exfalso|reflexivity].
    pose proof (c_at_least M W st (i + 2 * s)). lia. }
  revert H. generalize (shrunk M W st N) as bad. intros bad H. destruct (Nat.le_gt_cases t N) as [Ht|Ht].
  - clear H. induction Ht; [lia|]. rewrite count_S. lia.
  - induction Ht; rewrite count_S; [rewrite H by lia; lia|]. rewrite (H m) by lia. lia.
Qed.

(* The one argument behind this file, from any call i at which Packed-SS has got to l_j on: a context whose reach has not shrunk
   gains an iteration on Linear-SS's; one whose reach has shrunk loses at most one. *)
Lemma chase M W st N i j t k :
  Nat.min N (l M W st j) <= c M W st i -> k + count (shrunk M W st N) i t <= t ->
  Nat.min N (l M W st (j + k)) <= c M W st (i + 2 * t).
Proof.
  intros H0. revert k; induction t as [|t IH]; intros k H.
  - assert (k = 0) as -> by lia. now rewrite !Nat.add_0_r.
  - rewrite count_S in H. pose proof (c_monotone M W st (i + 2 * t) (i + 2 * S t)).
    destruct (Nat.le_gt_cases N (c M W st (i + 2 * t))) as [|Hc]; [lia|].
    destruct (shrunk M W st N (i + 2 * t)) eqn:E.
    + specialize (IH k). lia.
    + destruct k as [|k].
      { rewrite Nat.add_0_r. pose proof (c_monotone M W st i (i + 2 * S t)). lia. }
      rewrite Nat.add_succ_r, l_next. specialize (IH k). pose proof (c_next M W st (i + 2 * t)) as T.
      replace (S (S (i + 2 * t))) with (i + 2 * S t) in T by lia.
      pose proof (shrunk_false M W st N (i + 2 * t) (j + k) Hc E). lia.
Qed.

(* As long as the two are level at every second call nothing is lost. Where that ends, Packed-SS is a call ahead. *)
Lemma level_or_ahead M W st J :
  c M W st (2 * J) = l M W st J \/ exists T, T < J /\ l M W st (S T) <= c M W st (1 + 2 * T).
Proof.
  induction J as [|J [IH|(T & HT & IH)]]; [left; apply c_start| |right; exists T; auto].
  destruct (Nat.le_gt_cases (l M W st (S J)) (c M W st (1 + 2 * J))) as [|H]; [right; exists J; auto|left].
  rewrite l_next, <- IH in *. replace (2 * S J) with (S (S (2 * J))) by lia. now apply c_exactly.
Qed.

(* claim: BOUND-2D *)
(* Subtraction of naturals: 2o - 1 is 0 for o = 0. *)
Theorem BOUND_2D M W st eos L :
  let e := count (shrunk M W st (stop eos L)) 0 (stop eos L) in
  let o := count (shrunk M W st (stop eos L)) 1 (stop eos L) in
  NFE M (packed W st) eos L <= NFE M (linear W st) eos L + Nat.min (2 * e) (2 * o - 1).
Proof.
  intros e o.
  destruct (linear_NFE M W st eos L) as [Z|(J & H1 & H2)]; [rewrite nothing_to_do by assumption; lia|].
  set (N := stop eos L) in *.
  enough (NFE M (packed W st) eos L <= opening st + 2 * (J + e) /\
          NFE M (packed W st) eos L <= opening st + 2 * J + (2 * o - 1)) by lia.
  split.
  - apply packed_NFE. fold N.
    pose proof (chase M W st N 0 0 (J + e) J) as H. rewrite <- c_start in H. cbn [Nat.add] in H.
    pose proof (count_capped M W st N 0 (J + e)). fold e in H0. lia.
  - destruct (level_or_ahead M W st J) as [E|(T & HT & E)].
    { rewrite <- E in H1. apply packed_NFE in H1. lia. }
    pose proof (chase M W st N (1 + 2 * T) (S T) (J - S T + o) (J - S T)) as H.
    replace (S T + (J - S T)) with J in H by lia.
    pose proof (count_later (shrunk M W st N) 1 T (J - S T + o)).
    pose proof (count_capped M W st N 1 (T + (J - S T + o))). fold o in H3.
    pose proof (packed_NFE M W st eos L (1 + 2 * T + 2 * (J - S T + o))) as P. fold N in P. lia.
Qed.

(* claim: BOUND-2D *)
(* d counts against all shorter contexts: more of them, but they can be read off the drafter and Packed-SS's run alone. *)
Theorem BOUND_2D_any_shorter_context M W st eos L :
  let d := count (shrunk_from_any M W st (stop eos L)) 0 (stop eos L) in
  NFE M (packed W st) eos L <= NFE M (linear W st) eos L + 2 * d.
Proof.
  pose proof (BOUND_2D M W st eos L).
  pose proof (count_le _ _ 0 (stop eos L) (shrunk_shrunk_from_any M W st (stop eos L))). cbn zeta in *. lia.
Qed.

(* ---------------------------------------------------------------- Without an assumption: never W/2 times as many *)

(* claim: BOUND-RATIO *)
(* One iteration of Linear-SS gains at most W+1 tokens; Packed-SS is level with its beginning and makes up for it in two calls,
   or is beyond it and does in W. *)
Theorem BOUND_RATIO M W st eos L :
  2 * NFE M (packed W st) eos L <= Nat.max 2 W * NFE M (linear W st) eos L.
Proof.
  destruct (linear_NFE M W st eos L) as [Z|(J & H1 & H2)]; [rewrite nothing_to_do by assumption; lia|].
  assert (H : exists n, n <= Nat.max 2 W * J /\ l M W st J <= c M W st n).
  { clear H1 H2. induction J as [|J (n & Hn & IH)].
    - exists 0. rewrite c_start. lia.
    - destruct (Nat.eq_dec (l M W st J) (c M W st n)) as [E|E].
      + exists (S (S n)). rewrite l_next, E. split; [lia|apply c_next].
      + exists (n + W). split; [lia|]. rewrite l_next.
        assert (G : forall w, c M W st n + w <= c M W st (n + w)).
        { destruct n as [|n].
          { assert (l M W st 0 <= l M W st J) by (clear; induction J; [|rewrite l_next; unfold reach]; lia).
            rewrite c_start in *. lia. }
          induction w as [|w G]; [rewrite !Nat.add_0_r; lia|]. pose proof (c_gains M W st (n + w)).
          replace (S n + S w) with (S (S (n + w))) by lia. simpl in G. lia. }
        specialize (G W). unfold reach. pose proof (leading_bound (M (l M W st J)) (l M W st J) W). lia. }
  destruct H as (n & Hn & H).
  assert (P : NFE M (packed W st) eos L <= opening st + n) by (apply packed_NFE; lia).
  nia.
Qed.

(* ---------------------------------------------------------------- ASM-REACH *)

(* From any context of Linear-SS to a longer one of Packed-SS, in step (i = 0) or out of it (i = 1), reach does not shrink. *)
Definition ASM_REACH (M : matrix) (W : nat) (st : start) (N i : nat) : Prop :=
  forall s j, let c'' := c M W st (i + 2 * s) in let c' := l M W st j in
  c' <= c'' -> c'' < N -> Nat.min N (reach M W c') <= reach M W c''.

Lemma ASM_REACH_count M W st N i : ASM_REACH M W st N i -> count (shrunk M W st N) i N = 0.
Proof.
  intros A. unfold count. induction (seq 0 N) as [|s ss IH]; [reflexivity|]. cbn [filter].
  destruct (shrunk M W st N (i + 2 * s)) eqn:E; [exfalso|exact IH].
  unfold shrunk, shrinks in E. rewrite andb_true_iff, Nat.ltb_lt, existsb_exists in E. destruct E as (E & j & _ & E').
  rewrite andb_true_iff, Nat.leb_le, Nat.ltb_lt in E'. specialize (A s j). cbn zeta in A. lia.
Qed.

(* claim: ASM-REACH *)
Theorem THM32_from_reach M W st :
  (forall N, ASM_REACH M W st N 0) -> forall n, pos M (linear W st) n <= pos M (packed W st) n.
Proof.
  intros A. enough (H : forall N n, Nat.min N (pos M (linear W st) n) <= pos M (packed W st) n).
  { intros n. specialize (H (pos M (linear W st) n) n). lia. }
  intros N. apply from_iterations_to_calls. intros t. fold (l M W st t). fold (c M W st (2 * t)).
  apply (chase M W st N 0 0 t t); [rewrite c_start; lia|].
  pose proof (count_capped M W st N 0 t). rewrite ASM_REACH_count in H by apply A. lia.
Qed.

(* claim: ASM-REACH *)
Theorem EQ5_from_reach M W st eos L :
  ASM_REACH M W st (stop eos L) 0 \/ ASM_REACH M W st (stop eos L) 1 ->
  NFE M (packed W st) eos L <= NFE M (linear W st) eos L.
Proof. pose proof (BOUND_2D M W st eos L) as B. cbn zeta in B. intros [A|A]; apply ASM_REACH_count in A; lia. Qed.

(* claim: ASM-REACH *)
Theorem ASM31_implies_ASM_REACH M W st c_star N i :
  ASM31 (fun c => evaluated M W st c /\ c < N) W M c_star -> ASM_REACH M W st N i.
Proof.
  intros A s j c'' c' H1 H2.
  rewrite !(LEMB1_progress _ W M c_star _ A).
  - pose proof (LEMB1_monotone W c_star c' c''). lia.
  - split; [apply evaluated_packed|assumption].
  - split; [apply evaluated_linear|lia].
Qed.

(* Position 2 is right when drafted from the prompt, and wrong when drafted with one token more; all else is wrong. *)
Definition right_too_early : matrix := fun c k => (c =? 0) && (k =? 2).

(* claim: ASM-REACH *)
Theorem ASM_REACH_is_weaker :
  (forall st N i, ASM_REACH right_too_early 2 st N i) /\
  ~ exists c_star, ASM31 (evaluated right_too_early 2 algorithm) 2 right_too_early c_star.
Proof.
  split.
  - assert (R : forall c, reach right_too_early 2 c = c + 1) by (intros [|n]; unfold reach; simpl; lia).
    intros st N i s j c'' c' H1 H2. rewrite !R. lia.
  - intros [c_star A].
    pose proof (A 0 2 (evaluated_packed right_too_early 2 algorithm 0)) as A0.
    pose proof (A 1 2 (evaluated_packed right_too_early 2 algorithm 1)) as A1.
    assert (E0 : true = (c_star 2 <=? 0)) by (apply A0; lia).
    assert (E1 : false = (c_star 2 <=? 1)) by (apply A1; lia).
    symmetry in E0, E1. apply Nat.leb_le in E0. apply Nat.leb_gt in E1. lia.
Qed.

(* ---------------------------------------------------------------- Width *)

(* claim: ASM-NEEDED *)
(* With W <= 2 nothing is needed: a pair of calls gains two tokens, an iteration at most three. *)
Theorem THM32_narrow M W st n : W <= 2 -> pos M (linear W st) n <= pos M (packed W st) n.
Proof.
  intros HW. enough (H : Nat.min (pos M (linear W st) n) (pos M (linear W st) n) <= pos M (packed W st) n) by lia.
  revert n. enough (H : forall N n, Nat.min N (pos M (linear W st) n) <= pos M (packed W st) n) by (intros; apply H).
  intros N. apply from_iterations_to_calls. intros t. fold (l M W st t). fold (c M W st (2 * t)).
  enough (l M W st t <= c M W st (2 * t)) by lia.
  induction t as [|t IH]; [rewrite <- c_start; simpl; lia|].
  rewrite l_next. pose proof (c_next M W st (2 * t)) as T. replace (2 * S t) with (S (S (2 * t))) by lia.
  destruct (Nat.eq_dec (l M W st t) (c M W st (2 * t))) as [->|Hne]; [assumption|].
  destruct t as [|t]; [now rewrite <- c_start in Hne|].
  replace (2 * S t) with (S (S (2 * t))) in * by lia.
  pose proof (c_gains M W st (S (2 * t))). pose proof (c_gains M W st (S (S (2 * t)))).
  unfold reach. pose proof (leading_bound (M (l M W st (S t))) (l M W st (S t)) W). lia.
Qed.

(* claim: ASM-NEEDED *)
Theorem EQ5_narrow M W st eos L : W <= 2 -> NFE M (packed W st) eos L <= NFE M (linear W st) eos L.
Proof. intros H. apply from_positions_to_NFE. intros n. pose proof (THM32_narrow M W st n H). lia. Qed.

(* ---------------------------------------------------------------- When the schedules stay level *)

(* claim: THM3.2 *)
Theorem level_iff_no_call_between_reaches M W st :
  (forall t, c M W st (2 * t) = l M W st t) <->
  (forall t, c M W st (S (2 * t)) < reach M W (c M W st (2 * t))).
Proof.
  split; intros H t.
  - apply c_exactly. replace (S (S (2 * t))) with (2 * S t) by lia. rewrite !H. apply l_next.
  - induction t as [|t IH]; [apply c_start|]. rewrite l_next, <- IH. replace (2 * S t) with (S (S (2 * t))) by lia.
    now apply c_exactly.
Qed.

Lemma linear_calls_to_its_lengths M W st t : NFE M (linear W st) never (l M W st (S t)) = opening st + 2 * S t.
Proof.
  pose proof (NFE_iff M (linear W st) never (l M W st (S t)) (linear_busy W st)) as I. rewrite stop_never in I.
  apply Nat.le_antisymm; [now apply I|].
  destruct (Nat.le_gt_cases (opening st + 2 * S t) (NFE M (linear W st) never (l M W st (S t)))) as [|B]; [assumption|].
  assert (C : l M W st (S t) <= pos M (linear W st) (S (opening st + 2 * t))) by (apply I; lia).
  rewrite (proj1 (linear_iteration M W st t)) in C. fold (l M W st t) in C. rewrite l_next in C. unfold reach in C. lia.
Qed.

(* claim: THM3.2 *)
(* The same in calls: to every length that Linear-SS comes by, Packed-SS needs exactly as many. To a length in between it
   can need one less, an odd number. *)
Theorem level_in_calls M W st :
  (forall t, NFE M (packed W st) never (l M W st (S t)) = NFE M (linear W st) never (l M W st (S t))) <->
  (forall t, c M W st (S (2 * t)) < reach M W (c M W st (2 * t))).
Proof.
  assert (I : forall t n, NFE M (packed W st) never (l M W st t) <= opening st + n <-> l M W st t <= c M W st n).
  { intros. rewrite NFE_iff by apply packed_busy. now rewrite stop_never. }
  split; intros H.
  - assert (E : forall t, c M W st (2 * t) = l M W st t).
    { induction t as [|t IH]; [apply c_start|]. rewrite l_next, <- IH. replace (2 * S t) with (S (S (2 * t))) by lia.
      apply c_exactly. rewrite IH, <- l_next.
      pose proof (I (S t) (S (2 * t))) as [_ B]. rewrite H, linear_calls_to_its_lengths in B. lia. }
    now apply level_iff_no_call_between_reaches.
  - pose proof (proj2 (level_iff_no_call_between_reaches M W st) H) as E. intros t. rewrite linear_calls_to_its_lengths.
    apply Nat.le_antisymm; [apply I; rewrite E; lia|].
    destruct (Nat.le_gt_cases (opening st + 2 * S t) (NFE M (packed W st) never (l M W st (S t)))) as [|B]; [assumption|].
    specialize (H t). rewrite E, <- l_next in H. pose proof (proj1 (I (S t) (S (2 * t)))). lia.
Qed.

(* ---------------------------------------------------------------- The bound is attained *)

(* One call of Packed-SS with a draft from context b in hand, of which the first m tokens are right and no more. *)
Lemma packed_call M W b v m :
  leading (M b) v (b + W - v) = m -> step M (Both W) (State v b (b + W)) = State (v + m + 1) v (v + W).
Proof. intros <-. reflexivity. Qed.

Lemma leading_none right v n : (forall k, right k = false) -> leading right v n = 0.
Proof. intros H. destruct n; [reflexivity|]. simpl. now rewrite H. Qed.

(* A drafter of width 2d+3. Linear-SS comes to position 3, from where all is right, and then needs one iteration; Packed-SS
   passes by it (a draft from position 1 takes it from 2 to 4), and then gains one token a call. *)
Definition passed_by (d : nat) : matrix := fun c k =>
  match c with
  | 0 => k =? 1
  | 1 => k =? 3
  | 3 => true
  | _ => (c =? 2 * d + 5) && (k =? 2 * d + 6)
  end.

Section Attained.
Variable d : nat.
Let M := passed_by d.
Let W := 2 * d + 3.
Let N := 2 * d + 7.

Lemma passed_by_false k' k : 4 <= k' -> k <> 2 * d + 6 -> M k' k = false.
Proof.
  intros H1 H2. destruct k' as [|[|[|[|n]]]]; try lia. unfold M, passed_by.
  destruct (Nat.eqb_spec k (2 * d + 6)); [lia|]. apply andb_false_r.
Qed.

Lemma passed_by_reach c' :
  reach M W c' = if c' =? 0 then 2 else if (c' =? 3) || (c' =? 2 * d + 5) then N else c' + 1.
Proof.
  assert (E : W = S (S (S (2 * d)))) by (unfold W; lia).
  assert (A : forall n k, leading (fun _ => true) k n = n) by (induction n; simpl; auto).
  unfold reach. destruct (Nat.eqb_spec c' (2 * d + 5)) as [->|H5].
  { rewrite E. cbn [leading]. replace (M (2 * d + 5) (S (2 * d + 5))) with true.
    - rewrite passed_by_false by lia. rewrite orb_true_r. unfold N.
      destruct (Nat.eqb_spec (2 * d + 5) 0); lia.
    - symmetry. unfold M, passed_by. replace (2 * d + 5) with (S (S (S (S (2 * d + 1))))) by lia.
      rewrite Nat.eqb_refl. apply Nat.eqb_eq. lia. }
  rewrite orb_false_r. destruct (Nat.eqb_spec c' 3) as [->|H3].
  { change (M 3) with (fun _ : nat => true). rewrite A. unfold N, W. simpl. lia. }
  rewrite E. destruct c' as [|[|[|[|n]]]]; [reflexivity|reflexivity| |lia|].
  all: cbn [leading]; unfold M, passed_by; apply Nat.eqb_neq in H5; rewrite H5; simpl; lia.
Qed.

Lemma passed_by_packed n : pos M (packed W algorithm) n = if n <=? 2 then n else n + 1.
Proof.
  assert (A1 : after M (packed W algorithm) 1 = State 1 0 (0 + W)) by reflexivity.
  assert (A2 : after M (packed W algorithm) 2 = State 2 1 (1 + W)).
  { change (step M (Both W) (after M (packed W algorithm) 1) = State 2 1 (1 + W)). rewrite A1.
    apply (packed_call M W 0 1 0). replace (0 + W - 1) with (S (2 * d + 1)) by (unfold W; lia). reflexivity. }
  assert (A3 : after M (packed W algorithm) 3 = State 4 2 (2 + W)).
  { change (step M (Both W) (after M (packed W algorithm) 2) = State 4 2 (2 + W)). rewrite A2.
    apply (packed_call M W 1 2 1). replace (1 + W - 2) with (S (S (2 * d))) by (unfold W; lia). reflexivity. }
  assert (A : forall m, after M (packed W algorithm) (4 + m) = State (5 + m) (4 + m) (4 + m + W)).
  { induction m as [|m IH].
    - change (step M (Both W) (after M (packed W algorithm) 3) = State 5 4 (4 + W)). rewrite A3.
      apply (packed_call M W 2 4 0). replace (2 + W - 4) with (S (2 * d)) by (unfold W; lia). cbn [leading].
      unfold M, passed_by. destruct (Nat.eqb_spec 2 (2 * d + 5)); [lia|reflexivity].
    - rewrite Nat.add_succ_r.
      change (step M (Both W) (after M (packed W algorithm) (4 + m)) = State (5 + S m) (S (4 + m)) (S (4 + m) + W)).
      rewrite IH. rewrite (packed_call M W (4 + m) (5 + m) 0); [f_equal; lia|].
      replace (4 + m + W - (5 + m)) with (S (2 * d + 1)) by (unfold W; lia). cbn [leading].
      replace (M (4 + m) (S (5 + m))) with false; [reflexivity|].
      symmetry. unfold M, passed_by. cbn [Nat.add]. apply andb_false_iff.
      destruct (Nat.eqb_spec (S (S (S (S m)))) (2 * d + 5)); [right; apply Nat.eqb_neq; lia|now left]. }
  unfold pos. destruct n as [|[|[|[|n]]]]; [reflexivity|now rewrite A1|now rewrite A2|now rewrite A3|].
  change (S (S (S (S n)))) with (4 + n). rewrite A. simpl. lia.
Qed.

Lemma passed_by_linear : l M W algorithm 0 = 0 /\ l M W algorithm 1 = 2 /\ l M W algorithm 2 = 3 /\ l M W algorithm 3 = N.
Proof.
  assert (H0 : l M W algorithm 0 = 0) by reflexivity.
  assert (H1 : l M W algorithm 1 = 2) by (rewrite l_next, H0, passed_by_reach; reflexivity).
  assert (H2 : l M W algorithm 2 = 3).
  { rewrite l_next, H1, passed_by_reach. destruct (Nat.eqb_spec 2 (2 * d + 5)); [lia|reflexivity]. }
  repeat split; auto. rewrite l_next, H2, passed_by_reach. reflexivity.
Qed.

Lemma passed_by_NFE_linear : NFE M (linear W algorithm) never N = 6.
Proof.
  destruct passed_by_linear as (_ & _ & H2 & H3).
  assert (I := NFE_iff M (linear W algorithm) never N (linear_busy W algorithm)). rewrite stop_never in I.
  apply Nat.le_antisymm; [apply I; change 6 with (opening algorithm + 2 * 3); fold (l M W algorithm 3); lia|].
  destruct (Nat.le_gt_cases 6 (NFE M (linear W algorithm) never N)) as [|H]; [assumption|].
  assert (B : N <= pos M (linear W algorithm) 5) by (apply I; lia).
  change 5 with (S (opening algorithm + 2 * 2)) in B.
  rewrite (proj1 (linear_iteration M W algorithm 2)) in B. fold (l M W algorithm 2) in B. unfold N in B. lia.
Qed.

Lemma passed_by_NFE_packed : NFE M (packed W algorithm) never N = 2 * d + 6.
Proof.
  assert (I := NFE_iff M (packed W algorithm) never N (packed_busy W algorithm)). rewrite stop_never in I.
  apply Nat.le_antisymm.
  - apply I. rewrite passed_by_packed. destruct (Nat.leb_spec (2 * d + 6) 2); unfold N; lia.
  - destruct (Nat.le_gt_cases (2 * d + 6) (NFE M (packed W algorithm) never N)) as [|H]; [assumption|].
    assert (B : N <= pos M (packed W algorithm) (2 * d + 5)) by (apply I; lia).
    rewrite passed_by_packed in B. destruct (Nat.leb_spec (2 * d + 5) 2); unfold N in B; lia.
Qed.

(* Of a_s = 0, 2, 5, 7, ... only those from 5 to 2d+3 have shrunk. *)
Lemma passed_by_shrunk s : shrunk_from_any M W algorithm N (2 * s) = true -> 2 <= s < 2 + d.
Proof.
  unfold shrunk_from_any. rewrite andb_true_iff, Nat.ltb_lt, existsb_exists. intros [H1 (c' & H2 & H3)].
  apply in_seq in H2. apply Nat.ltb_lt in H3. unfold c in *. cbn [opening Nat.add] in *.
  rewrite passed_by_packed, !passed_by_reach in *. unfold N in *.
  destruct (Nat.leb_spec (2 * s) 2); destruct (Nat.eqb_spec c' 0), (Nat.eqb_spec c' 3), (Nat.eqb_spec c' (2 * d + 5));
    simpl orb in H3; cbn iota in H3;
    repeat match type of H3 with context [?a =? ?b] => destruct (Nat.eqb_spec a b); simpl orb in H3; cbn iota in H3 end; lia.
Qed.

Lemma count_in_range bad K a b : (forall s, bad (2 * s) = true -> a <= s < a + b) -> count bad 0 K <= b.
Proof.
  intros H. unfold count. rewrite <- (seq_length b a). apply NoDup_incl_length.
  - apply NoDup_filter, seq_NoDup.
  - intros s Hs. apply filter_In in Hs. apply in_seq, H, Hs.
Qed.

Lemma passed_by_counts :
  count (shrunk M W algorithm N) 0 N = d /\ count (shrunk_from_any M W algorithm N) 0 N = d.
Proof.
  pose proof (BOUND_2D M W algorithm never N) as B.
  cbn zeta in B. rewrite stop_never, passed_by_NFE_packed, passed_by_NFE_linear in B.
  pose proof (count_le _ _ 0 N (shrunk_shrunk_from_any M W algorithm N)).
  pose proof (count_in_range _ N 2 d passed_by_shrunk). lia.
Qed.

End Attained.

(* claim: BOUND-2D *)
Theorem BOUND_2D_attained d :
  exists M W L,
    count (shrunk M W algorithm L) 0 L = d /\ count (shrunk_from_any M W algorithm L) 0 L = d /\
    NFE M (packed W algorithm) never L = NFE M (linear W algorithm) never L + 2 * d.
Proof.
  exists (passed_by d), (2 * d + 3), (2 * d + 7). destruct (passed_by_counts d). repeat split; auto.
  rewrite passed_by_NFE_packed, passed_by_NFE_linear. lia.
Qed.

(* A drafter under which Packed-SS passes by every context B_i = 3 + i(W+1) of Linear-SS by one token: from B_i all is right,
   and else nothing but the one proposal that takes Packed-SS past the next of them. *)
Definition lagging (W : nat) : matrix := fun c k =>
  match c with
  | 0 => k =? 1
  | 1 => k =? 3
  | 2 => false
  | S (S (S m)) => let r := m mod (W + 1) in (r =? 0) || (r =? W - 1) && (k =? c + 2)
  end.

Section Sharp.
Variable W : nat.
Hypothesis W3 : 3 <= W.
Let M := lagging W.
Let B i := 3 + i * (W + 1).

Lemma lagging_row i r k : r <= W -> M (B i + r) k = (r =? 0) || (r =? W - 1) && (k =? B i + r + 2).
Proof.
  intros H. unfold M, B. cbn [lagging Nat.add].
  replace ((i * (W + 1) + r) mod (W + 1)) with r; [reflexivity|].
  rewrite Nat.add_comm, Nat.mod_add, Nat.mod_small; lia.
Qed.

Lemma lagging_before i k : M (B i - 1) k = false.
Proof.
  destruct i as [|i]; [reflexivity|]. replace (B (S i) - 1) with (B i + W) by (unfold B; simpl; lia).
  rewrite lagging_row by lia. destruct (Nat.eqb_spec W 0), (Nat.eqb_spec W (W - 1)); lia || reflexivity.
Qed.

Lemma lagging_linear i : l M W algorithm (2 + i) = B i.
Proof.
  induction i as [|i IH].
  - assert (E : W = S (S (S (W - 3)))) by lia.
    cbn [Nat.add]. rewrite !l_next. change (l M W algorithm 0) with 0.
    assert (R0 : reach M W 0 = 2) by (unfold reach; rewrite E; reflexivity). rewrite R0.
    unfold reach. rewrite E. reflexivity.
  - rewrite Nat.add_succ_r, l_next, IH. unfold reach.
    pose proof (leading_bound (M (B i)) (B i) W).
    pose proof (leading_reaches (M (B i)) (B i) W (B i + W) (Nat.le_refl _)) as F.
    replace (B (S i)) with (B i + W + 1) by (unfold B; simpl; lia).
    enough (B i + W <= B i + leading (M (B i)) (B i) W) by lia.
    apply F. intros j _. rewrite <- (Nat.add_0_r (B i)) at 1. now rewrite lagging_row by lia.
Qed.

Lemma lagging_packed i r : r < W ->
  let b := if r =? 0 then B i - 1 else B i + r in
  after M (packed W algorithm) (3 + i * W + r) = State (B i + 1 + r) b (b + W).
Proof.
  revert r. induction i as [|i IHi]; induction r as [|r IHr]; intros Hr.
  - (* the first three calls *)
    assert (E : W = S (S (S (W - 3)))) by lia.
    change (step M (Both W) (step M (Both W) (State 1 0 (0 + W))) = State 4 2 (2 + W)).
    rewrite (packed_call M W 0 1 0) by (rewrite E; reflexivity). change (1 + 0 + 1) with 2.
    rewrite (packed_call M W 1 2 1); [reflexivity|].
    replace (1 + W - 2) with (S (W - 2)) by lia. cbn [leading]. unfold M at 1. cbn [lagging Nat.eqb].
    destruct (W - 2); reflexivity.
  - (* one token a call *)
    replace (3 + 0 * W + S r) with (S (3 + 0 * W + r)) by lia. cbn [after]. rewrite IHr by lia.
    change (packed W algorithm (3 + 0 * W + r)) with (Both W).
    rewrite (packed_call M W _ _ 0).
    { cbn [Nat.eqb]. f_equal; lia. }
    apply leading_none. intros k. destruct (Nat.eqb_spec r 0); [apply lagging_before|].
    rewrite lagging_row by lia. destruct (Nat.eqb_spec r 0), (Nat.eqb_spec r (W - 1)); lia || reflexivity.
  - (* past the next context of Linear-SS *)
    replace (3 + S i * W + 0) with (S (3 + i * W + (W - 1))) by (simpl; lia). cbn [after]. rewrite IHi by lia.
    change (packed W algorithm (3 + i * W + (W - 1))) with (Both W).
    destruct (Nat.eqb_spec (W - 1) 0); [lia|].
    rewrite (packed_call M W _ _ 1).
    { unfold B. simpl. f_equal; lia. }
    replace (B i + (W - 1) + W - (B i + 1 + (W - 1))) with (S (S (W - 3))) by lia. cbn [leading].
    rewrite !lagging_row by lia. rewrite Nat.eqb_refl.
    destruct (Nat.eqb_spec (W - 1) 0); [lia|].
    destruct (Nat.eqb_spec (S (B i + 1 + (W - 1))) (B i + (W - 1) + 2)); [|lia].
    destruct (Nat.eqb_spec (S (S (B i + 1 + (W - 1)))) (B i + (W - 1) + 2)); [lia|reflexivity].
  - replace (3 + S i * W + S r) with (S (3 + S i * W + r)) by lia. cbn [after]. rewrite IHr by lia.
    change (packed W algorithm (3 + S i * W + r)) with (Both W).
    rewrite (packed_call M W _ _ 0).
    { cbn [Nat.eqb]. f_equal; lia. }
    apply leading_none. intros k. destruct (Nat.eqb_spec r 0); [apply lagging_before|].
    rewrite lagging_row by lia. destruct (Nat.eqb_spec r 0), (Nat.eqb_spec r (W - 1)); lia || reflexivity.
Qed.

Lemma lagging_NFE i :
  NFE M (packed W algorithm) never (B i) = 3 + i * W /\ NFE M (linear W algorithm) never (B i) = 4 + 2 * i.
Proof.
  split.
  - assert (I := NFE_iff M (packed W algorithm) never (B i) (packed_busy W algorithm)). rewrite stop_never in I.
    assert (P : forall j r, r < W -> pos M (packed W algorithm) (3 + j * W + r) = B j + 1 + r).
    { intros j r Hr. unfold pos. now rewrite lagging_packed. }
    apply Nat.le_antisymm.
    + apply I. rewrite <- (Nat.add_0_r (3 + i * W)), P; lia.
    + destruct (Nat.le_gt_cases (3 + i * W) (NFE M (packed W algorithm) never (B i))) as [|H]; [assumption|].
      assert (F : B i <= pos M (packed W algorithm) (2 + i * W)) by (apply I; lia).
      destruct i as [|i].
      { assert (E : W = S (S (S (W - 3)))) by lia. rewrite E in F. cbv in F. lia. }
      replace (2 + S i * W) with (3 + i * W + (W - 1)) in F by (simpl; lia). rewrite P in F by lia.
      unfold B in F. simpl in F. lia.
  - rewrite <- lagging_linear. cbn [Nat.add]. rewrite linear_calls_to_its_lengths. simpl. lia.
Qed.

End Sharp.

(* claim: BOUND-RATIO *)
(* No smaller factor a/b than W/2 bounds the calls of Packed-SS by those of Linear-SS. *)
Theorem BOUND_RATIO_sharp W a b :
  3 <= W -> 2 * a < W * b ->
  exists M L, a * NFE M (linear W algorithm) never L < b * NFE M (packed W algorithm) never L.
Proof.
  intros HW H. exists (lagging W), (3 + (4 * a + 1) * (W + 1)).
  destruct (lagging_NFE W HW (4 * a + 1)) as [-> ->]. nia.
Qed.

(* A drafter given by its right proposals (context, position). *)
Definition listed (pairs : list (nat * nat)) : matrix :=
  fun c k => existsb (fun p => (fst p =? c) && (snd p =? k)) pairs.
Definition narrowest : matrix :=
  listed [(0, 1); (1, 3); (3, 4); (3, 5); (3, 6); (5, 6); (5, 7); (7, 8); (7, 9); (7, 10); (8, 9)].

(* claim: ASM-NEEDED *)
(* At L = 8 (no shorter length does: an exhaustive search, not a theorem here), and at W = 3, the smallest width that does. *)
Theorem ASM_needed :
  (NFE (lagging 4) (linear 4 algorithm) never 8 = 6 /\ NFE (lagging 4) (packed 4 algorithm) never 8 = 7) /\
  (NFE narrowest (linear 3 algorithm) never 11 = 8 /\ NFE narrowest (packed 3 algorithm) never 11 = 9).
Proof. vm_compute. auto. Qed.

(* ---------------------------------------------------------------- What is not true *)

(* refuted: LEMB2 *)
Theorem LEMB2_any_drafter_not_one_more :
  ~ forall M W s, reach M W (verified s) + 1 <= verified (step M (Both W) (step M (Both W) s)).
Proof. intros H. specialize (H (monotone always_right) 1 initial). vm_compute in H. lia. Qed.

(* refuted: LEMB2 *)
(* Exactly at reach c only if the first call stays short of it, not if it gets just there. *)
Theorem LEMB2_exactly_not_one_more :
  ~ forall M W s, verified (step M (Both W) s) <= reach M W (verified s) ->
      verified (step M (Both W) (step M (Both W) s)) = reach M W (verified s).
Proof. intros H. specialize (H (listed []) 1 initial). vm_compute in H. assert (2 = 1) by (apply H; lia). lia. Qed.

(* refuted: BOUND-2D *)
Theorem BOUND_2D_not_one_less :
  ~ forall M W st eos L,
      let e := count (shrunk M W st (stop eos L)) 0 (stop eos L) in
      let o := count (shrunk M W st (stop eos L)) 1 (stop eos L) in
      1 <= e -> 1 <= o -> NFE M (packed W st) eos L + 1 <= NFE M (linear W st) eos L + Nat.min (2 * e) (2 * o - 1).
Proof. intros H. specialize (H (passed_by 1) 5 algorithm never 9). vm_compute in H. lia. Qed.

(* refuted: BOUND-2D *)
Theorem BOUND_2D_any_shorter_context_not_one_less :
  ~ forall M W st eos L,
      let d := count (shrunk_from_any M W st (stop eos L)) 0 (stop eos L) in
      1 <= d -> NFE M (packed W st) eos L + 1 <= NFE M (linear W st) eos L + 2 * d.
Proof. intros H. specialize (H (passed_by 1) 5 algorithm never 9). vm_compute in H. lia. Qed.

(* refuted: BOUND-RATIO *)
Theorem BOUND_RATIO_not_one_less :
  ~ forall M W st eos L, 2 * NFE M (packed W st) eos L <= Nat.max 2 (W - 1) * NFE M (linear W st) eos L.
Proof. intros H. specialize (H (lagging 4) 4 algorithm never 23). vm_compute in H. lia. Qed.

(* refuted: ASM-REACH *)
Theorem EQ5_from_reach_not_strict :
  ~ forall M W st L, 1 <= L -> ASM_REACH M W st L 0 ->
      NFE M (packed W st) never L + 1 <= NFE M (linear W st) never L.
Proof.
  intros H. specialize (H (monotone always_right) 1 algorithm 2).
  assert (A : ASM_REACH (monotone always_right) 1 algorithm 2 0).
  { apply (ASM31_implies_ASM_REACH _ _ _ always_right), always_right_ASM31. }
  specialize (H ltac:(lia) A). vm_compute in H. lia.
Qed.

(* refuted: ASM-REACH *)
(* A reach that shrinks by one somewhere is too much. *)
Theorem EQ5_from_reach_not_one_weaker :
  ~ forall M W st L,
      (forall s j, l M W st j <= c M W st (2 * s) -> c M W st (2 * s) < L ->
         Nat.min L (reach M W (l M W st j)) <= reach M W (c M W st (2 * s)) + 1) ->
      NFE M (packed W st) never L <= NFE M (linear W st) never L.
Proof.
  intros H. specialize (H narrowest 3 algorithm 11). destruct ASM_needed as [_ [E1 E2]]. rewrite E1, E2 in H.
  enough (9 <= 8) by lia. apply H. clear H E1 E2. intros s j Hj Hs.
  assert (11 <= c narrowest 3 algorithm 10) by (vm_compute; lia).
  assert (s < 5) by (pose proof (c_monotone narrowest 3 algorithm 10 (2 * s)); lia).
  assert (j < 11) by (pose proof (l_at_least narrowest 3 algorithm j); lia).
  set (c' := c narrowest 3 algorithm) in *. set (l' := l narrowest 3 algorithm) in *. set (r := reach narrowest 3).
  assert (B : forallb (fun s => forallb (fun j =>
    implb ((l' j <=? c' (2 * s)) && (c' (2 * s) <? 11)) (Nat.min 11 (r (l' j)) <=? r (c' (2 * s)) + 1))
    (seq 0 11)) (seq 0 5) = true) by (vm_compute; reflexivity).
  rewrite forallb_forall in B. specialize (B s ltac:(apply in_seq; lia)).
  rewrite forallb_forall in B. specialize (B j ltac:(apply in_seq; lia)).
  apply Nat.leb_le in Hj. apply Nat.ltb_lt in Hs. rewrite Hj, Hs in B. now apply Nat.leb_le.
Qed.

(* refuted: ASM-NEEDED *)
Theorem THM32_narrow_not_3 :
  ~ forall M W st eos L, W <= 3 -> NFE M (packed W st) eos L <= NFE M (linear W st) eos L.
Proof. intros H. specialize (H narrowest 3 algorithm never 11). vm_compute in H. lia. Qed.

(* refuted: THM3.2 *)
(* Level also needs that no call in between gets just to reach a_s. *)
Theorem level_not_one_more :
  ~ forall M W st,
      (forall t, c M W st (S (2 * t)) <= reach M W (c M W st (2 * t))) -> forall t, c M W st (2 * t) = l M W st t.
Proof.
  intros H. specialize (H (listed []) 1 algorithm).
  assert (R : forall c', reach (listed []) 1 c' = c' + 1) by (intros; unfold reach; simpl; lia).
  assert (C : forall n, c (listed []) 1 algorithm n = n).
  { unfold c, pos. induction n as [|n IH]; [reflexivity|]. cbn [opening Nat.add after] in *.
    change (packed 1 algorithm n) with (Both 1). cbn [step verified]. unfold accept. rewrite IH.
    destruct (draft_length _); simpl; lia. }
  assert (E : c (listed []) 1 algorithm (2 * 1) = l (listed []) 1 algorithm 1).
  { apply H. intros t. rewrite R, !C. lia. }
  vm_compute in E. discriminate.
Qed.

Print Assumptions LEMB2_any_drafter.
Print Assumptions LEMB2_exactly.
Print Assumptions BOUND_2D.
Print Assumptions BOUND_2D_any_shorter_context.
Print Assumptions BOUND_RATIO.
Print Assumptions BOUND_2D_attained.
Print Assumptions THM32_from_reach.
Print Assumptions EQ5_from_reach.
Print Assumptions ASM31_implies_ASM_REACH.
Print Assumptions ASM_REACH_is_weaker.
Print Assumptions THM32_narrow.
Print Assumptions EQ5_narrow.
Print Assumptions level_iff_no_call_between_reaches.
Print Assumptions level_in_calls.
Print Assumptions BOUND_RATIO_sharp.
Print Assumptions ASM_needed.
