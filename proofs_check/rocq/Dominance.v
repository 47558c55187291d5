(* Pathwise dominance (section 3.1 and Appendix B.1 of the paper): greedy Packed-SS never needs more calls than Linear-SS.

   In plain words, by the paper's ids:

     EQ6        F(c) as computed here is the minimum that EQ6 writes down, the infinite set included.
     LEMB1      F is nondecreasing, and drafting W tokens at c and then verifying them ends at F(c).
     LEMB2      Two calls of Packed-SS that begin at c verified tokens end at F(c) or beyond.
     THM3.2     After any number of calls Packed-SS has verified at least as many tokens as Linear-SS; so also after 2t
                calls against t iterations.
     EQ5        NFE_packed(L) <= NFE_linear(L), for every limit L and every set of EOS positions.
     DOM-WIDE, DOM-SAMPLED
                The same when both begin with start `wide`, or both with start `sampled`.
     STOP       Stopping cuts the output at the first EOS or at L and refunds no call; L = 0 makes none.
     PROGRESS   Every call that verifies gains a token, so every run ends; Packed-SS makes at most L calls from its own start.
     DRAFTLEN   A call of Packed-SS leaves W - A (or 0) draft tokens, at most W - 1; after start `wide` or `sampled`, W.
     COR-GREEDY Over tokens: every schedule here emits the target's greedy continuation, cut at the first EOS or at L.

   THM3.2 and EQ5 are stated twice: over positions, and (below) over tokens, for an arbitrary verifier and drafter whose
   proposals are compared with the verifier's predictions by equality.

   Where this differs from the paper:
     - ASM3.1 is asked for less: only at the contexts that one of the two runs really drafts from (for EQ5: before it stops),
       and only for the W positions after such a context. c*_k <= k is not needed, nor W >= 1.
     - THM3.2 compares the runs call by call, which contains the paper's comparison at even calls.
     - LEMB2 is proved here from ASM3.1, as in the paper. Reach.v shows that it needs no assumption.
     - Starts `wide`, `sampled` and `prompt` are our reading of E.2; the paper's theorem is about `algorithm`.
     - Ties between equally likely tokens do not exist here: verifier and drafter are functions to tokens.

   `claim: ID` stands before the theorem that proves a claim. `refuted: ID` stands before a theorem that disproves a version
   of the claim that promises one more than the claim does: so no bound here can be improved by one. *)

From Coq Require Import Arith Bool Lia List.
Import ListNotations.

(* ---------------------------------------------------------------- Least elements and leading runs *)

(* The minimum of {d} and the list. *)
Definition least (d : nat) (xs : list nat) : nat := fold_right Nat.min d xs.

Lemma le_least d xs m : m <= least d xs <-> m <= d /\ forall x, In x xs -> m <= x.
Proof.
  induction xs as [|y ys IH]; simpl.
  - intuition.
  - rewrite Nat.min_glb_iff, IH. firstorder. now subst.
Qed.

Lemma least_attained d xs : least d xs = d \/ In (least d xs) xs.
Proof.
  induction xs as [|y ys IH]; simpl; auto.
  destruct (Nat.min_spec y (least d ys)) as [[_ ->]|[_ ->]]; tauto.
Qed.

(* How many of the positions k+1, ..., k+n are right before the first wrong one. *)
Fixpoint leading (right : nat -> bool) (k n : nat) : nat :=
  match n with
  | 0 => 0
  | S m => if right (S k) then S (leading right (S k) m) else 0
  end.

Lemma leading_bound right k n : leading right k n <= n.
Proof. revert k; induction n; intros k; simpl; [|destruct (right (S k)); [specialize (IHn (S k))|]]; lia. Qed.

Lemma leading_right right k n j : k < j <= k + leading right k n -> right j = true.
Proof.
  revert k; induction n; intros k; simpl; [lia|].
  destruct (right (S k)) eqn:E; [|lia]. intros H.
  destruct (Nat.eq_dec j (S k)) as [->|]; [assumption|]. apply (IHn (S k)); lia.
Qed.

Lemma leading_wrong right k n : leading right k n < n -> right (S (k + leading right k n)) = false.
Proof.
  revert k; induction n; intros k; simpl; [lia|].
  destruct (right (S k)) eqn:E; intros H; [|now rewrite Nat.add_0_r].
  rewrite <- Nat.add_succ_comm. apply IHn; lia.
Qed.

(* If all of k+1, ..., m are right and within reach, the leading run gets at least to m. *)
Lemma leading_reaches right k n m :
  m <= k + n -> (forall j, k < j <= m -> right j = true) -> m <= k + leading right k n.
Proof.
  intros Hm Hall. destruct (Nat.le_gt_cases m (k + leading right k n)) as [|H]; [assumption|].
  assert (W : leading right k n < n) by lia.
  apply leading_wrong in W. rewrite Hall in W by lia. discriminate.
Qed.

Lemma leading_ext f g k n : (forall j, k < j <= k + n -> f j = g j) -> leading f k n = leading g k n.
Proof.
  revert k; induction n; intros k H; simpl; [reflexivity|].
  rewrite (H (S k)) by lia. destruct (g (S k)); [|reflexivity].
  f_equal. apply IHn. intros; apply H; lia.
Qed.

(* ---------------------------------------------------------------- ASM3.1 and EQ6 *)

(* right c k: the proposal for output position k, drafted from c verified output tokens, is the target's token. *)
Definition matrix := nat -> nat -> bool.

(* Where drafting W tokens from c verified ones and verifying them ends: the right ones, then the verifier's own token. *)
Definition reach (M : matrix) (W c : nat) : nat := c + leading (M c) c W + 1.

(* Thresholds as a list: c*_1, c*_2, ...; 0 beyond it. *)
Definition thresholds (c_star : list nat) (k : nat) : nat := nth (k - 1) c_star 0.

Definition monotone (c_star : nat -> nat) : matrix := fun c k => c_star k <=? c.

(* EQ6, over the positions that can matter: beyond c+W the first term is smaller. *)
Definition F (W : nat) (c_star : nat -> nat) (c : nat) : nat :=
  least (c + W + 1) (filter (fun k => c <? c_star k) (seq (c + 1) W)).

(* ASM3.1, for the contexts in V and the W positions that are drafted from each. *)
Definition ASM31 (V : nat -> Prop) (W : nat) (M : matrix) (c_star : nat -> nat) : Prop :=
  forall c k, V c -> c < k <= c + W -> M c k = (c_star k <=? c).

(* claim: EQ6 *)
(* F(c) is the greatest number that is at most c+W+1 and at most every k > c with c*_k > c. *)
Theorem F_is_EQ6 W c_star c m :
  m <= F W c_star c <-> m <= c + W + 1 /\ forall k, c < k -> c < c_star k -> m <= k.
Proof.
  unfold F. rewrite le_least. split; intros [H1 H2]; split; auto.
  - intros k Hk Hc. destruct (Nat.le_gt_cases k (c + W)) as [Hle|]; [|lia].
    apply H2, filter_In. rewrite in_seq, Nat.ltb_lt. lia.
  - intros k Hk. apply filter_In in Hk. rewrite in_seq, Nat.ltb_lt in Hk. apply H2; lia.
Qed.

Lemma F_attained W c_star c :
  F W c_star c = c + W + 1 \/ (c < F W c_star c <= c + W /\ c < c_star (F W c_star c)).
Proof.
  destruct (least_attained (c + W + 1) (filter (fun k => c <? c_star k) (seq (c + 1) W))) as [H|H]; [now left|right].
  fold (F W c_star c) in H. apply filter_In in H. rewrite in_seq, Nat.ltb_lt in H. lia.
Qed.

(* claim: LEMB1 *)
Theorem LEMB1_monotone W c_star c c' : c <= c' -> F W c_star c <= F W c_star c'.
Proof.
  intros H. destruct (proj1 (F_is_EQ6 W c_star c (F W c_star c))) as [H1 H2]; [lia|].
  apply F_is_EQ6. split; [lia|]. intros k Hk Hc. apply H2; lia.
Qed.

(* claim: LEMB1 *)
(* Under ASM3.1 at c, the first wrong proposal or the bonus token is at F(c). *)
Theorem LEMB1_progress V W M c_star c : ASM31 V W M c_star -> V c -> reach M W c = F W c_star c.
Proof.
  intros A Hc. unfold reach.
  destruct (proj1 (F_is_EQ6 W c_star c (F W c_star c))) as [B1 B2]; [lia|].
  pose proof (leading_bound (M c) c W) as B.
  assert (c + leading (M c) c W + 1 <= F W c_star c).
  { destruct (F_attained W c_star c) as [->|[Hr Hw]]; [lia|].
    destruct (Nat.le_gt_cases (c + leading (M c) c W + 1) (F W c_star c)); [assumption|].
    assert (R : M c (F W c_star c) = true) by (apply (leading_right _ c W); lia).
    rewrite A in R by (assumption || lia). apply Nat.leb_le in R. lia. }
  destruct (Nat.lt_ge_cases (leading (M c) c W) W) as [Hw|]; [|lia].
  pose proof (leading_wrong (M c) c W Hw) as R. rewrite A in R by (assumption || lia).
  apply Nat.leb_gt in R. apply B2 in R; lia.
Qed.

(* ---------------------------------------------------------------- The schedules over positions *)

(* What one call does; the number is how many positions it drafts. *)
Inductive call := Prompt | Draft (w : nat) | Verify | Both (w : nat).

Definition drafts (k : call) : bool := match k with Draft _ | Both _ => true | _ => false end.
Definition verifies (k : call) : bool := match k with Verify | Both _ => true | _ => false end.

(* `verified` output tokens; the draft in hand, made when `context` of them were verified, is for verified+1, ..., upto. *)
Record state := State { verified : nat; context : nat; upto : nat }.

Definition initial : state := State 0 0 0.

Definition draft_length (s : state) : nat := upto s - verified s.

(* Verified tokens after checking the draft in hand: its leading right tokens, and the verifier's own. *)
Definition accept (M : matrix) (s : state) : nat :=
  verified s + leading (M (context s)) (verified s) (draft_length s) + 1.

(* ALG1.L3-L10 without stopping. A call that drafts does so from the tokens that were verified before it. *)
Definition step (M : matrix) (k : call) (s : state) : state :=
  match k with
  | Prompt => s
  | Draft w => State (verified s) (verified s) (verified s + w)
  | Verify => State (accept M s) 0 0
  | Both w => State (accept M s) (verified s) (verified s + w)
  end.

(* Call t = 0, 1, 2, ... of a schedule; INIT for the starts. *)
Definition program := nat -> call.
Inductive start := algorithm | wide | sampled | prompt.

Definition linear (W : nat) (st : start) : program := fun t =>
  let cycle t := if Nat.even t then Draft W else Verify in
  match st, t with
  | algorithm, _ => cycle t
  | prompt, 0 => Prompt
  | _, 0 => Verify
  | _, S u => cycle u
  end.

Definition packed (W : nat) (st : start) : program := fun t =>
  match st, t with
  | wide, 0 => Both (W + 1)
  | sampled, 0 => Verify
  | sampled, 1 => Draft W
  | prompt, 0 => Prompt
  | _, _ => Both W
  end.

Fixpoint after (M : matrix) (prog : program) (n : nat) : state :=
  match n with 0 => initial | S m => step M (prog m) (after M prog m) end.

(* Verified output tokens after n calls, if nothing stops the run. *)
Definition pos (M : matrix) (prog : program) (n : nat) : nat := verified (after M prog n).

(* ---------------------------------------------------------------- Stopping *)

(* eos k: the target's token at output position k is an EOS. *)

(* ALG1.L2 *)
Definition goes_on (eos : nat -> bool) (L c : nat) : bool := (c <? L) && negb ((0 <? c) && eos c).

(* ALG1.L7: how many of the A tokens after position c are kept. *)
Definition ending (eos : nat -> bool) (L c A : nat) : nat :=
  least A (L - c :: filter (fun i => eos (c + i)) (seq 1 A)).

(* The position of the last output token: the first EOS, or L. *)
Definition stop (eos : nat -> bool) (L : nat) : nat := least L (filter eos (seq 1 L)).

Definition stopped_step (M : matrix) (eos : nat -> bool) (L : nat) (k : call) (s : state) : state :=
  let s' := step M k s in
  State (verified s + ending eos L (verified s) (verified s' - verified s)) (context s') (upto s').

(* The states after each call, from state s before call t. *)
Fixpoint run (M : matrix) (prog : program) (eos : nat -> bool) (L fuel t : nat) (s : state) : list state :=
  match fuel with
  | 0 => []
  | S f => if goes_on eos L (verified s)
           then let s' := stopped_step M eos L (prog t) s in s' :: run M prog eos L f (S t) s'
           else []
  end.

(* No schedule here makes more than 2L+1 calls: proved below. *)
Definition whole_run M prog eos L : list state := run M prog eos L (2 * L + 1) 0 initial.
Definition passes M prog eos L : list nat := map verified (whole_run M prog eos L).
Definition NFE M prog eos L : nat := length (whole_run M prog eos L).

Definition never : nat -> bool := fun _ => false.

Lemma stop_spec eos L :
  stop eos L <= L /\ (stop eos L = L \/ 1 <= stop eos L /\ eos (stop eos L) = true) /\
  (forall k, 1 <= k <= L -> eos k = true -> stop eos L <= k).
Proof.
  destruct (proj1 (le_least L (filter eos (seq 1 L)) (stop eos L))) as [H1 H2]; [reflexivity|].
  split; [assumption|split].
  - destruct (least_attained L (filter eos (seq 1 L))) as [H|H]; [now left|right].
    fold (stop eos L) in H. apply filter_In in H. rewrite in_seq in H. intuition lia.
  - intros k Hk E. apply H2, filter_In. now rewrite in_seq; split; [lia|].
Qed.

Lemma stop_never L : stop never L = L.
Proof. pose proof (stop_spec never L). unfold never in *. intuition discriminate. Qed.

Lemma goes_on_stop eos L c : c <= stop eos L -> goes_on eos L c = (c <? stop eos L).
Proof.
  destruct (stop_spec eos L) as (H1 & H2 & H3). intros Hc. unfold goes_on.
  destruct (Nat.ltb_spec c (stop eos L)) as [H|H].
  - destruct (Nat.ltb_spec c L); [|lia]. destruct (Nat.ltb_spec 0 c); [|reflexivity].
    destruct (eos c) eqn:E; [|reflexivity]. apply H3 in E; lia.
  - assert (c = stop eos L) as -> by lia.
    destruct H2 as [->|[Hp ->]]; [now rewrite Nat.ltb_irrefl|].
    destruct (Nat.ltb_spec 0 (stop eos L)); [|lia]. apply andb_false_r.
Qed.

Lemma ending_stop eos L c A : c < stop eos L -> c + ending eos L c A = Nat.min (c + A) (stop eos L).
Proof.
  destruct (stop_spec eos L) as (H1 & H2 & H3). intros Hc.
  set (xs := L - c :: filter (fun i => eos (c + i)) (seq 1 A)).
  destruct (proj1 (le_least A xs (ending eos L c A))) as [B1 B2]; [reflexivity|].
  pose proof (least_attained A xs) as H4. unfold xs in *. clear xs.
  fold (ending eos L c A) in H4. set (e := ending eos L c A) in *. clearbody e.
  assert (U : e <= stop eos L - c).
  { destruct H2 as [->|[Hp He]]; [apply B2; now left|].
    destruct (Nat.le_gt_cases (stop eos L - c) A) as [|]; [|lia].
    apply B2; right. apply filter_In. rewrite in_seq. split; [lia|].
    now replace (c + (stop eos L - c)) with (stop eos L) by lia. }
  destruct H4 as [H4|[H4|H4]]; [lia|lia|].
  apply filter_In in H4. rewrite in_seq in H4. destruct H4 as [H4 He]. apply H3 in He; lia.
Qed.

(* ---------------------------------------------------------------- Progress *)

(* claim: PROGRESS *)
Theorem verifying_gains M k s : verifies k = true -> verified s < verified (step M k s).
Proof. destruct k; simpl; unfold accept; intros; try discriminate; lia. Qed.

Lemma step_monotone M k s : verified s <= verified (step M k s).
Proof. destruct k; simpl; unfold accept; lia. Qed.

Lemma pos_monotone M prog n m : n <= m -> pos M prog n <= pos M prog m.
Proof. induction 1; [lia|]. pose proof (step_monotone M (prog m) (after M prog m)). unfold pos in *. simpl. lia. Qed.

Lemma pos_gains M prog n : verifies (prog n) = true -> pos M prog n < pos M prog (S n).
Proof. apply verifying_gains. Qed.

(* After its first call, a schedule verifies in at least one of any two calls. *)
Definition busy (prog : program) : Prop := forall t, verifies (prog (S t)) || verifies (prog (S (S t))) = true.

Lemma linear_busy W st : busy (linear W st).
Proof.
  intros t. unfold linear.
  destruct st; rewrite ?Nat.even_succ, <- ?Nat.negb_even; cbn - [Nat.even];
    rewrite ?Nat.even_succ, <- ?Nat.negb_even; destruct (Nat.even t); reflexivity.
Qed.

Lemma packed_busy W st : busy (packed W st).
Proof. intros [|t]; destruct st; reflexivity. Qed.

Lemma busy_pos M prog n : busy prog -> n <= pos M prog (2 * n + 1).
Proof.
  intros B. induction n; [lia|]. replace (2 * S n + 1) with (S (S (2 * n + 1))) by lia.
  specialize (B (2 * n)). replace (S (2 * n)) with (2 * n + 1) in B by lia.
  pose proof (pos_monotone M prog (2 * n + 1) (S (2 * n + 1))).
  pose proof (pos_monotone M prog (S (2 * n + 1)) (S (S (2 * n + 1)))).
  apply orb_true_iff in B as [B|B]; apply (pos_gains M) in B; lia.
Qed.

(* ---------------------------------------------------------------- What stopping does to a run *)

Section Stopping.
Variables (M : matrix) (prog : program) (eos : nat -> bool) (L : nat).
Let N := stop eos L.

Lemma run_spec fuel t s :
  verified s <= N -> (verified s < N -> s = after M prog t) -> Nat.min N (pos M prog t) = verified s ->
  let n := length (run M prog eos L fuel t s) in
  (forall m, m < n -> pos M prog (t + m) < N) /\
  (n < fuel -> N <= pos M prog (t + n)) /\
  map verified (run M prog eos L fuel t s) = map (fun m => Nat.min (pos M prog m) N) (seq (S t) n).
Proof.
  revert t s; induction fuel as [|f IH]; intros t s Hs Ht Hm; cbn -[stopped_step]; [repeat split; intros; lia|].
  rewrite goes_on_stop by assumption. fold N. destruct (Nat.ltb_spec (verified s) N) as [H|H].
  2:{ repeat split; simpl; intros; [lia|rewrite Nat.add_0_r; lia]. }
  specialize (Ht H). subst s.
  assert (V : verified (stopped_step M eos L (prog t) (after M prog t)) = Nat.min (pos M prog (S t)) N).
  { unfold stopped_step. cbn [verified]. rewrite ending_stop by assumption.
    pose proof (step_monotone M (prog t) (after M prog t)). unfold pos. cbn [after]. fold N. lia. }
  destruct (IH (S t) (stopped_step M eos L (prog t) (after M prog t))) as (A & B & C); [lia| |lia|].
  { intros Hlt. rewrite V in Hlt. unfold stopped_step. fold (after M prog (S t)).
    change (step M (prog t) (after M prog t)) with (after M prog (S t)).
    pose proof (step_monotone M (prog t) (after M prog t)) as Mo.
    change (step M (prog t) (after M prog t)) with (after M prog (S t)) in Mo.
    rewrite ending_stop by assumption. fold N. unfold pos in Hlt.
    destruct (after M prog (S t)) as [v b u]. simpl in *. f_equal. lia. }
  cbn [length map]. repeat split.
  - intros [|m] Hlt; [rewrite Nat.add_0_r; unfold pos; lia|].
    rewrite <- Nat.add_succ_comm. apply A. lia.
  - intros Hlt. rewrite <- Nat.add_succ_comm. apply B. lia.
  - cbn [seq map]. rewrite V, C. reflexivity.
Qed.

Hypothesis prog_busy : busy prog.

(* NFE is the least number of calls after which the stop position is verified. *)
Lemma NFE_least : N <= pos M prog (NFE M prog eos L) /\ forall m, m < NFE M prog eos L -> pos M prog m < N.
Proof.
  destruct (run_spec (2 * L + 1) 0 initial) as (A & B & _); [apply Nat.le_0_l|reflexivity|apply Nat.min_0_r|].
  split; [|exact A]. fold (whole_run M prog eos L) in *. fold (NFE M prog eos L) in *.
  destruct (Nat.lt_ge_cases (NFE M prog eos L) (2 * L + 1)) as [H|H]; [now apply B|].
  pose proof (busy_pos M prog L prog_busy). pose proof (pos_monotone M prog _ _ H).
  pose proof (stop_spec eos L). unfold N. lia.
Qed.

Lemma NFE_iff n : NFE M prog eos L <= n <-> N <= pos M prog n.
Proof.
  destruct NFE_least as [A B]. split; intros H.
  - pose proof (pos_monotone M prog _ _ H). lia.
  - destruct (Nat.le_gt_cases (NFE M prog eos L) n) as [|H']; [assumption|]. apply B in H'. lia.
Qed.

(* claim: STOP *)
(* Verified tokens after each call are those of the run that nothing stops, cut at the stop position. *)
Theorem stop_cuts :
  passes M prog eos L = map (fun n => Nat.min (pos M prog n) (stop eos L)) (seq 1 (NFE M prog eos L)).
Proof.
  destruct (run_spec (2 * L + 1) 0 initial) as (_ & _ & C); [apply Nat.le_0_l|reflexivity|apply Nat.min_0_r|]. exact C.
Qed.

End Stopping.

(* claim: STOP *)
(* Truncation refunds no call: a run that EOS or L cuts makes the calls needed to get there without being cut. *)
Theorem stop_refunds_nothing M prog eos L n :
  busy prog -> NFE M prog eos L <= n <-> stop eos L <= pos M prog n.
Proof. intros. now apply NFE_iff. Qed.

(* claim: STOP *)
Theorem no_output_no_call M prog eos : NFE M prog eos 0 = 0.
Proof. reflexivity. Qed.

(* claim: PROGRESS *)
(* Every run ends by itself, not by its fuel, at the stop position. *)
Theorem runs_end M prog eos L :
  busy prog -> NFE M prog eos L <= 2 * L + 1 /\ stop eos L <= pos M prog (NFE M prog eos L).
Proof.
  intros B. split; [|now apply NFE_least]. apply NFE_iff; [assumption|].
  pose proof (busy_pos M prog L B). pose proof (stop_spec eos L). lia.
Qed.

(* claim: PROGRESS *)
Theorem packed_at_most_one_call_a_token M W eos L st :
  NFE M (packed W st) eos L <= match st with algorithm | wide => L | sampled | prompt => L + 1 end.
Proof.
  set (d := match st with algorithm | wide => 0 | _ => 1 end).
  assert (P : forall n, n <= pos M (packed W st) (d + n)).
  { induction n; [lia|]. rewrite Nat.add_succ_r.
    destruct (verifies (packed W st (d + n))) eqn:E; [apply (pos_gains M) in E; lia|].
    subst d. destruct st, n as [|n]; simpl in E; try discriminate E.
    unfold pos; simpl. unfold accept. lia. }
  replace (match st with algorithm | wide => L | _ => L + 1 end) with (d + L) by (subst d; destruct st; lia).
  apply NFE_iff; [apply packed_busy|]. specialize (P L). pose proof (stop_spec eos L). lia.
Qed.

(* claim: DRAFTLEN *)
(* A = verified' - verified: what is kept is W - A, with 0 for less (subtraction of naturals), so at most W - 1. *)
Theorem draft_length_after M W s :
  draft_length (step M (Both W) s) = W - (verified (step M (Both W) s) - verified s) /\
  draft_length (step M (Both W) s) <= W - 1.
Proof. unfold draft_length; simpl; unfold accept. lia. Qed.

(* claim: DRAFTLEN *)
Theorem draft_length_after_start M W :
  draft_length (after M (packed W wide) 1) = W /\ draft_length (after M (packed W sampled) 2) = W.
Proof. cbn -[Nat.sub Nat.add accept]. unfold draft_length, accept; simpl. lia. Qed.

(* ---------------------------------------------------------------- Two calls *)

(* Whatever was in hand before, if a call drafts W positions from c and the next one verifies, the two end at reach c. *)
Lemma two_calls M W k1 k2 s :
  k1 = Draft W \/ k1 = Both W -> verifies k2 = true ->
  reach M W (verified s) <= verified (step M k2 (step M k1 s)).
Proof.
  intros H1 H2.
  set (s' := step M k1 s).
  assert (E : context s' = verified s /\ upto s' = verified s + W) by (destruct H1; subst k1; now simpl).
  destruct E as [Ec Eu].
  assert (A : verified (step M k2 s') = accept M s') by (destruct k2; simpl in *; congruence).
  rewrite A. unfold accept, reach, draft_length. rewrite Ec, Eu.
  pose proof (leading_bound (M (verified s)) (verified s) W) as B.
  destruct (Nat.le_gt_cases (verified s + leading (M (verified s)) (verified s) W) (verified s')) as [|H]; [lia|].
  assert (verified s <= verified s') by apply step_monotone.
  enough (verified s + leading (M (verified s)) (verified s) W
          <= verified s' + leading (M (verified s)) (verified s') (verified s + W - verified s')) by lia.
  apply leading_reaches; [lia|]. intros j Hj. apply (leading_right _ (verified s) W). lia.
Qed.

(* claim: LEMB1 *)
(* A fresh draft of W tokens and its verification end exactly at reach c = F(c). *)
Theorem fresh_draft_ends_at_reach M W s :
  verified (step M Verify (step M (Draft W) s)) = reach M W (verified s).
Proof. simpl. unfold accept, reach, draft_length; simpl. now replace (verified s + W - verified s) with W by lia. Qed.

(* claim: LEMB2 *)
Theorem LEMB2 V W M c_star s :
  ASM31 V W M c_star -> V (verified s) ->
  F W c_star (verified s) <= verified (step M (Both W) (step M (Both W) s)).
Proof. intros A H. rewrite <- (LEMB1_progress V W M c_star) by assumption. apply two_calls; auto. Qed.

(* ---------------------------------------------------------------- Both schedules, from any start *)

(* How many calls precede the first drafting call of Linear-SS. *)
Definition opening (st : start) : nat := match st with algorithm => 0 | _ => 1 end.

Lemma same_opening M W st : pos M (packed W st) (opening st) = pos M (linear W st) (opening st).
Proof. destruct st; reflexivity. Qed.

Lemma even_double t : Nat.even (2 * t) = true.
Proof. rewrite Nat.even_mul. reflexivity. Qed.

Lemma linear_cycle W st t : linear W st (opening st + 2 * t) = Draft W /\ linear W st (S (opening st + 2 * t)) = Verify.
Proof.
  unfold linear. destruct st; cbn [opening Nat.add]; rewrite ?Nat.even_succ, <- ?Nat.negb_even, even_double; auto.
Qed.

Lemma packed_cycle W st n :
  (packed W st (opening st + n) = Draft W \/ packed W st (opening st + n) = Both W) /\
  packed W st (S (opening st + n)) = Both W.
Proof. destruct st, n; simpl; auto. Qed.

Lemma linear_iteration M W st t :
  pos M (linear W st) (S (opening st + 2 * t)) = pos M (linear W st) (opening st + 2 * t) /\
  pos M (linear W st) (opening st + 2 * S t) = reach M W (pos M (linear W st) (opening st + 2 * t)).
Proof.
  destruct (linear_cycle W st t) as [D V]. unfold pos.
  replace (opening st + 2 * S t) with (S (S (opening st + 2 * t))) by lia.
  cbn [after]. rewrite D, V. split; [reflexivity|apply fresh_draft_ends_at_reach].
Qed.

Lemma packed_two_calls M W st n :
  reach M W (pos M (packed W st) (opening st + n)) <= pos M (packed W st) (opening st + S (S n)).
Proof.
  destruct (packed_cycle W st n) as [D B]. unfold pos.
  replace (opening st + S (S n)) with (S (S (opening st + n))) by lia.
  cbn [after]. rewrite B. now apply two_calls.
Qed.

(* Every number of calls beyond the opening is an iteration, or half of one. *)
Lemma calls_split o n : n < o \/ exists t, n = o + 2 * t \/ n = S (o + 2 * t).
Proof.
  destruct (Nat.lt_ge_cases n o); [now left|right]. exists ((n - o) / 2).
  pose proof (Nat.div_mod (n - o) 2). pose proof (Nat.mod_upper_bound (n - o) 2). lia.
Qed.

(* From iterations to single calls: it is enough to compare after the opening and t iterations. *)
Lemma from_iterations_to_calls M W st N :
  (forall t, Nat.min N (pos M (linear W st) (opening st + 2 * t)) <= pos M (packed W st) (opening st + 2 * t)) ->
  forall n, Nat.min N (pos M (linear W st) n) <= pos M (packed W st) n.
Proof.
  intros H n. destruct (calls_split (opening st) n) as [Ho|[t [->| ->]]].
  - assert (n = 0) as -> by (destruct st; simpl in Ho; lia). unfold pos. simpl. lia.
  - apply H.
  - rewrite (proj1 (linear_iteration M W st t)). specialize (H t).
    pose proof (pos_monotone M (packed W st) (opening st + 2 * t) (S (opening st + 2 * t))). lia.
Qed.

(* From positions to calls: Packed-SS is never behind before the stop, so it needs no more calls. *)
Lemma from_positions_to_NFE M W st eos L :
  (forall n, Nat.min (stop eos L) (pos M (linear W st) n) <= pos M (packed W st) n) ->
  NFE M (packed W st) eos L <= NFE M (linear W st) eos L.
Proof.
  intros H. apply NFE_iff; [apply packed_busy|].
  destruct (NFE_least M (linear W st) eos L (linear_busy W st)) as [E _].
  specialize (H (NFE M (linear W st) eos L)). lia.
Qed.

(* ---------------------------------------------------------------- THM3.2 *)

(* The contexts that one of the two schedules drafts from. *)
Definition evaluated (M : matrix) (W : nat) (st : start) (c : nat) : Prop :=
  exists prog n, (prog = packed W st \/ prog = linear W st) /\ drafts (prog n) = true /\ pos M prog n = c.

Lemma evaluated_packed M W st n : evaluated M W st (pos M (packed W st) (opening st + n)).
Proof.
  exists (packed W st), (opening st + n). repeat split; auto.
  destruct (packed_cycle W st n) as [[-> | ->] _]; reflexivity.
Qed.

Lemma evaluated_linear M W st t : evaluated M W st (pos M (linear W st) (opening st + 2 * t)).
Proof.
  exists (linear W st), (opening st + 2 * t). repeat split; auto.
  now rewrite (proj1 (linear_cycle W st t)).
Qed.

(* Up to position N, with ASM3.1 asked for only at contexts before N. *)
Lemma dominance_upto M W st c_star N :
  ASM31 (fun c => evaluated M W st c /\ c < N) W M c_star ->
  forall n, Nat.min N (pos M (linear W st) n) <= pos M (packed W st) n.
Proof.
  intros A. apply from_iterations_to_calls. induction t as [|t IH].
  - rewrite Nat.mul_0_r, Nat.add_0_r, same_opening. lia.
  - rewrite (proj2 (linear_iteration M W st t)).
    pose proof (packed_two_calls M W st (2 * t)) as T. replace (S (S (2 * t))) with (2 * S t) in T by lia.
    pose proof (pos_monotone M (packed W st) (opening st + 2 * t) (opening st + 2 * S t)).
    pose proof (evaluated_packed M W st (2 * t)) as Ep. pose proof (evaluated_linear M W st t) as El.
    set (a := pos M (packed W st) (opening st + 2 * t)) in *.
    set (l := pos M (linear W st) (opening st + 2 * t)) in *.
    destruct (Nat.le_gt_cases N a) as [|Ha]; [lia|].
    rewrite !(LEMB1_progress _ W M c_star _ A) in * by (split; [assumption|lia]).
    pose proof (LEMB1_monotone W c_star l a). lia.
Qed.

(* claim: THM3.2 *)
Theorem THM32 M W st c_star :
  ASM31 (evaluated M W st) W M c_star ->
  forall n, pos M (linear W st) n <= pos M (packed W st) n.
Proof.
  intros A n.
  pose proof (dominance_upto M W st c_star (pos M (linear W st) n)) as H.
  specialize (H (fun c k V => A c k (proj1 V)) n). lia.
Qed.

(* claim: THM3.2 *)
(* As the paper puts it: start `algorithm`, 2t calls of Packed-SS against t iterations of Linear-SS, l_{t+1} = F(l_t). *)
Theorem THM32_as_in_the_paper M W c_star :
  ASM31 (evaluated M W algorithm) W M c_star ->
  forall t, Nat.iter t (F W c_star) 0 <= pos M (packed W algorithm) (2 * t).
Proof.
  intros A t. enough (E : Nat.iter t (F W c_star) 0 = pos M (linear W algorithm) (2 * t)).
  { rewrite E. now apply (THM32 _ _ _ c_star). }
  induction t as [|t IH]; [reflexivity|].
  pose proof (linear_iteration M W algorithm t) as [_ E]. pose proof (evaluated_linear M W algorithm t) as V.
  cbn [opening Nat.add] in E, V. rewrite E, (LEMB1_progress _ W M c_star _ A V), <- IH. reflexivity.
Qed.

(* claim: EQ5 *)
Theorem EQ5 M W st c_star eos L :
  ASM31 (fun c => evaluated M W st c /\ c < stop eos L) W M c_star ->
  NFE M (packed W st) eos L <= NFE M (linear W st) eos L.
Proof. intros A. apply from_positions_to_NFE, (dominance_upto M W st c_star), A. Qed.

(* claim: THM3.2 *)
(* The simplest reading: a drafter given by its thresholds, without EOS, both schedules from the same start. *)
Theorem EQ5_thresholds W st c_star L :
  NFE (monotone c_star) (packed W st) never L <= NFE (monotone c_star) (linear W st) never L.
Proof. apply (EQ5 _ _ _ c_star). intros c k _ _. reflexivity. Qed.

(* claim: DOM-WIDE *)
Theorem DOM_WIDE M W c_star eos L :
  ASM31 (fun c => evaluated M W wide c /\ c < stop eos L) W M c_star ->
  NFE M (packed W wide) eos L <= NFE M (linear W wide) eos L.
Proof. apply EQ5. Qed.

(* claim: DOM-SAMPLED *)
Theorem DOM_SAMPLED M W c_star eos L :
  ASM31 (fun c => evaluated M W sampled c /\ c < stop eos L) W M c_star ->
  NFE M (packed W sampled) eos L <= NFE M (linear W sampled) eos L.
Proof. apply EQ5. Qed.

(* ---------------------------------------------------------------- The same, over tokens *)

(* Tokens are natural numbers. `P` includes the prompt; `D` is the draft for the positions after it. *)
Record tokens := Tokens { P : list nat; D : list nat }.

(* EQ2: how many leading draft tokens equal the verifier's predictions. *)
Fixpoint matches (D v : list nat) : nat :=
  match D, v with
  | d :: D', y :: v' => if d =? y then S (matches D' v') else 0
  | _, _ => 0
  end.

Section OverTokens.
Variable input : list nat.                    (* the prompt *)
Variable p : list nat -> nat.                 (* the verifier's most likely token after a prefix *)
Variable q : list nat -> nat -> nat.          (* the drafter's most likely token at the i-th position after a prefix *)
Variable eos : nat -> bool.
Variable L : nat.

(* The first n tokens of the target's greedy continuation x_1, x_2, ...; and the drafter's prediction xhat_k(c). *)
Fixpoint greedy (n : nat) : list nat :=
  match n with 0 => [] | S m => greedy m ++ [p (input ++ greedy m)] end.
Definition x (k : nat) : nat := p (input ++ greedy (k - 1)).
Definition xhat (k c : nat) : nat := q (input ++ greedy c) (k - c).
Definition correct : matrix := fun c k => xhat k c =? x k.

(* EQ1 = ALG1.L3, ALG1.L5-L6, EQ3 = ALG1.L4, ALG1.L7, ALG1.L2 *)
Definition predictions (P D : list nat) : list nat := map (fun i => p (P ++ firstn i D)) (seq 0 (S (length D))).
Definition block (P D : list nat) : list nat :=
  let v := predictions P D in let h := matches D v in firstn h D ++ [nth h v 0].
Definition proposals (P : list nat) (w : nat) : list nat := map (q P) (seq 1 w).
Definition kept (P C : list nat) : nat :=
  least (length C) (L + length input - length P :: filter (fun i => eos (nth (i - 1) C 0)) (seq 1 (length C))).
Definition tokens_go_on (P : list nat) : bool :=
  (length P - length input <? L) && negb ((0 <? length P - length input) && eos (last P 0)).

(* ALG1.L3-L10, and the calls of Linear-SS that do half of it. *)
Definition token_step (k : call) (T : tokens) : tokens :=
  let C := block (P T) (D T) in
  let a := kept (P T) C in
  match k with
  | Prompt => T
  | Draft w => Tokens (P T) (proposals (P T) w)
  | Verify => Tokens (P T ++ firstn a C) []
  | Both w => Tokens (P T ++ firstn a C) (skipn a (proposals (P T) w))
  end.

Fixpoint token_run (prog : program) (fuel t : nat) (T : tokens) : list tokens :=
  match fuel with
  | 0 => []
  | S f => if tokens_go_on (P T)
           then let T' := token_step (prog t) T in T' :: token_run prog f (S t) T'
           else []
  end.

Definition whole_token_run (prog : program) : list tokens := token_run prog (2 * L + 1) 0 (Tokens input []).
Definition token_NFE (prog : program) : nat := length (whole_token_run prog).
Definition output (prog : program) : list nat := P (last (whole_token_run prog) (Tokens input [])).

(* A state over tokens says what a state over positions says: the prefix is greedy, the draft is the drafter's. *)
Definition refines (s : state) (T : tokens) : Prop :=
  P T = input ++ greedy (verified s) /\
  D T = map (fun k => xhat k (context s)) (seq (S (verified s)) (draft_length s)).

Lemma greedy_length n : length (greedy n) = n.
Proof. induction n; simpl; [|rewrite app_length; simpl]; lia. Qed.

Lemma greedy_app c a : greedy (c + a) = greedy c ++ map x (seq (S c) a).
Proof.
  induction a; [now rewrite Nat.add_0_r, app_nil_r|].
  rewrite Nat.add_succ_r, seq_S, map_app, app_assoc, <- IHa. simpl.
  unfold x. do 4 f_equal. simpl. now rewrite Nat.sub_0_r.
Qed.

Lemma block_cons P d D : block P (d :: D) = if d =? p P then d :: block (P ++ [d]) D else [p P].
Proof.
  unfold block, predictions. simpl. rewrite app_nil_r.
  destruct (d =? p P); [|reflexivity]. rewrite <- seq_shift, map_map. simpl.
  rewrite <- !app_assoc. simpl.
  assert (E : map (fun i => p (P ++ d :: firstn i D)) (seq 1 (length D))
              = map (fun i => p ((P ++ [d]) ++ firstn i D)) (seq 1 (length D))).
  { apply map_ext. intros. now rewrite <- app_assoc. }
  now rewrite E.
Qed.

(* Verification accepts the target's own tokens, as many as the position machine says. *)
Lemma block_is_greedy b m c :
  block (input ++ greedy c) (map (fun k => xhat k b) (seq (S c) m))
  = map x (seq (S c) (S (leading (correct b) c m))).
Proof.
  revert c; induction m; intros c.
  - unfold block, predictions. simpl. rewrite app_nil_r. unfold x. now rewrite Nat.sub_succ, Nat.sub_0_r.
  - cbn [seq map]. rewrite block_cons. cbn [leading]. unfold correct at 1.
    assert (E : p (input ++ greedy c) = x (S c)) by (unfold x; now rewrite Nat.sub_succ, Nat.sub_0_r).
    rewrite E. destruct (Nat.eqb_spec (xhat (S c) b) (x (S c))) as [H|]; [|reflexivity].
    rewrite H. cbn [seq map]. f_equal.
    rewrite <- app_assoc. replace (greedy c ++ [x (S c)]) with (greedy (S c)) by (cbn; now rewrite E).
    apply IHm.
Qed.

Lemma skipn_seq a i n : skipn a (seq i n) = seq (i + a) (n - a).
Proof.
  revert i n; induction a; intros i n; simpl; [now rewrite Nat.add_0_r, Nat.sub_0_r|].
  destruct n; [reflexivity|]. simpl. rewrite IHa. f_equal. lia.
Qed.

Lemma proposals_are_xhat c w a :
  skipn a (proposals (input ++ greedy c) w) = map (fun k => xhat k c) (seq (S (c + a)) (c + w - (c + a))).
Proof.
  unfold proposals. rewrite skipn_map, skipn_seq.
  replace (c + w - (c + a)) with (w - a) by lia.
  replace (S (c + a)) with (c + (a + 1)) by lia. replace (1 + a) with (a + 1) by lia.
  generalize (w - a) as n, (a + 1) as i. induction n; intros i; [reflexivity|].
  simpl. f_equal; [unfold xhat; f_equal; lia|]. rewrite IHn. now rewrite Nat.add_succ_r.
Qed.

Lemma nth_block c A i : 1 <= i <= A -> nth (i - 1) (map x (seq (S c) A)) 0 = x (c + i).
Proof.
  intros H. rewrite nth_indep with (d' := x 0) by (rewrite map_length, seq_length; lia).
  rewrite map_nth, seq_nth by lia. f_equal. lia.
Qed.

Lemma kept_is_ending c A : kept (input ++ greedy c) (map x (seq (S c) A)) = ending (fun k => eos (x k)) L c A.
Proof.
  unfold kept, ending. rewrite map_length, seq_length, app_length, greedy_length.
  replace (L + length input - (length input + c)) with (L - c) by lia.
  f_equal. f_equal. apply filter_ext_in. intros i Hi. apply in_seq in Hi. now rewrite nth_block by lia.
Qed.

Lemma ending_le c A : ending (fun k => eos (x k)) L c A <= A.
Proof. eapply proj1, le_least, Nat.le_refl. Qed.

Lemma appended c A a :
  a <= A -> (input ++ greedy c) ++ firstn a (map x (seq (S c) A)) = input ++ greedy (c + a).
Proof.
  intros H. rewrite <- app_assoc, greedy_app. do 2 f_equal.
  rewrite firstn_map. f_equal. revert c A H. induction a; intros c [|A] H; simpl; try (reflexivity || lia).
  f_equal. apply IHa. lia.
Qed.

Lemma refines_step k s T :
  refines s T -> refines (stopped_step correct (fun k => eos (x k)) L k s) (token_step k T).
Proof.
  intros [HP HD]. destruct T as [P D]. cbn [Dominance.P Dominance.D] in *. subst P D.
  unfold refines, stopped_step, token_step, draft_length. cbn [Dominance.P Dominance.D].
  rewrite block_is_greedy, kept_is_ending.
  destruct k; cbn [step verified context upto].
  - rewrite Nat.sub_diag. unfold ending. cbn. rewrite Nat.min_0_r, Nat.add_0_r. auto.
  - rewrite Nat.sub_diag. unfold ending. cbn -[Nat.sub]. rewrite Nat.min_0_r, Nat.add_0_r. split; [reflexivity|].
    pose proof (proposals_are_xhat (verified s) w 0) as E. now rewrite Nat.add_0_r in E.
  - unfold accept. set (h := leading _ _ _).
    replace (verified s + h + 1 - verified s) with (S h) by lia.
    rewrite appended by apply ending_le. auto.
  - unfold accept. set (h := leading _ _ _).
    replace (verified s + h + 1 - verified s) with (S h) by lia.
    rewrite appended by apply ending_le. split; [reflexivity|apply proposals_are_xhat].
Qed.

Lemma refines_goes_on s T :
  refines s T -> tokens_go_on (P T) = goes_on (fun k => eos (x k)) L (verified s).
Proof.
  intros [HP _]. unfold tokens_go_on, goes_on. rewrite HP, app_length, greedy_length.
  replace (length input + verified s - length input) with (verified s) by lia.
  destruct (verified s) as [|c]; [reflexivity|].
  cbn [greedy]. rewrite app_assoc, last_last. unfold x. now rewrite Nat.sub_succ, Nat.sub_0_r.
Qed.

Lemma refines_run prog fuel t s T :
  refines s T ->
  Forall2 refines (run correct prog (fun k => eos (x k)) L fuel t s) (token_run prog fuel t T).
Proof.
  revert t s T; induction fuel; intros t s T R; simpl; [constructor|].
  rewrite (refines_goes_on s T R). destruct (goes_on _ _ _); constructor; [|apply IHfuel]; now apply refines_step.
Qed.

Let stop_position := stop (fun k => eos (x k)) L.

(* claim: THM3.2 *)
(* The token machine refines the position machine, call by call: its prefix is the prompt and as many greedy tokens as the
   position machine has verified, its draft is the drafter's. No assumption on the drafter. *)
Theorem tokens_refine_positions prog :
  Forall2 refines (whole_run correct prog (fun k => eos (x k)) L) (whole_token_run prog).
Proof. apply refines_run. unfold refines. simpl. now rewrite app_nil_r. Qed.

Lemma token_NFE_is_NFE prog : token_NFE prog = NFE correct prog (fun k => eos (x k)) L.
Proof.
  unfold token_NFE, NFE. induction (tokens_refine_positions prog); simpl; congruence.
Qed.

(* claim: COR-GREEDY *)
(* Whatever the drafter and the schedule, the output is the greedy continuation up to its first EOS or to L tokens. *)
Theorem token_machine_emits_x prog : busy prog -> output prog = input ++ greedy stop_position.
Proof.
  intros B.
  assert (R : refines (last (whole_run correct prog (fun k => eos (x k)) L) initial)
                      (last (whole_token_run prog) (Tokens input []))).
  { assert (I : refines initial (Tokens input [])) by (unfold refines; simpl; now rewrite app_nil_r).
    revert I. generalize initial, (Tokens input []). induction (tokens_refine_positions prog) as [|s T ss TT R RR IH];
      intros s0 T0 I; [assumption|].
    destruct RR; [exact R|]. apply (IH s0 T0 I). }
  destruct R as [E _]. unfold output. rewrite E. do 2 f_equal.
  pose proof (stop_cuts correct prog (fun k => eos (x k)) L) as C.
  destruct (NFE_least correct prog (fun k => eos (x k)) L B) as [Hn _].
  unfold passes, NFE in *. fold stop_position in Hn, C |- *.
  set (r := whole_run correct prog (fun k => eos (x k)) L) in *.
  assert (Z : forall (l : list state), verified (last l initial) = last (map verified l) 0).
  { induction l as [|a [|b l] IH]; auto. }
  rewrite Z, C. destruct (length r) as [|n].
  - unfold pos in Hn. simpl in *. lia.
  - rewrite seq_S, map_app. simpl map. rewrite last_last. simpl in Hn |- *. lia.
Qed.

(* claim: THM3.2 *)
(* Over tokens, with the assumption as the paper writes it: xhat_k(c) = x_k exactly when c >= c*_k. *)
Theorem THM32_tokens W st c_star :
  (forall c k, evaluated correct W st c -> c < stop_position -> c < k <= c + W -> (xhat k c = x k <-> c_star k <= c)) ->
  token_NFE (packed W st) <= token_NFE (linear W st).
Proof.
  intros A. rewrite !token_NFE_is_NFE. apply (EQ5 _ _ _ c_star). intros c k [V Hc] Hk.
  specialize (A c k V Hc Hk). unfold correct.
  destruct (Nat.eqb_spec (xhat k c) (x k)), (Nat.leb_spec (c_star k) c); try reflexivity; exfalso; intuition lia.
Qed.

End OverTokens.

(* ---------------------------------------------------------------- What is not true *)

(* One drafter refutes every version that promises one more: always right, W = 1. Both schedules go 0, 2, 4, ... *)
Definition always_right : nat -> nat := fun _ => 0.

Lemma always_right_ASM31 V W : ASM31 V W (monotone always_right) always_right.
Proof. intros c k _ _. reflexivity. Qed.

(* refuted: LEMB1 *)
Theorem F_not_strictly_increasing : ~ forall W c_star c c', c < c' -> F W c_star c < F W c_star c'.
Proof. intros H. specialize (H 2 (thresholds [0; 2; 0]) 0 1). vm_compute in H. lia. Qed.

(* refuted: LEMB2 *)
Theorem LEMB2_not_one_more :
  ~ forall V W M c_star s, ASM31 V W M c_star -> V (verified s) ->
      F W c_star (verified s) + 1 <= verified (step M (Both W) (step M (Both W) s)).
Proof.
  intros H. specialize (H (fun _ => True) 1 _ _ initial (always_right_ASM31 _ _) I). vm_compute in H. lia.
Qed.

(* refuted: THM3.2 *)
(* Not even one token ahead after the first iteration; and no call may be taken away. *)
Theorem THM32_not_one_more :
  ~ forall M W st c_star, ASM31 (evaluated M W st) W M c_star ->
      forall n, 2 <= n -> pos M (linear W st) n + 1 <= pos M (packed W st) n.
Proof.
  intros H. specialize (H _ 1 algorithm _ (always_right_ASM31 _ _) 2). vm_compute in H. lia.
Qed.

(* refuted: THM3.2 *)
Theorem THM32_not_one_call_less :
  ~ forall M W st c_star, ASM31 (evaluated M W st) W M c_star ->
      forall n, pos M (linear W st) (n + 1) <= pos M (packed W st) n.
Proof.
  intros H. specialize (H _ 1 algorithm _ (always_right_ASM31 _ _) 1). vm_compute in H. lia.
Qed.

(* refuted: EQ5 *)
Theorem EQ5_not_strict :
  ~ forall W st c_star L, 1 <= L ->
      NFE (monotone c_star) (packed W st) never L + 1 <= NFE (monotone c_star) (linear W st) never L.
Proof. intros H. specialize (H 1 algorithm always_right 2). vm_compute in H. lia. Qed.

(* refuted: DOM-WIDE *)
Theorem DOM_WIDE_not_strict :
  ~ forall W c_star L, 2 <= L ->
      NFE (monotone c_star) (packed W wide) never L + 1 <= NFE (monotone c_star) (linear W wide) never L.
Proof. intros H. specialize (H 1 (fun _ => 1) 3). vm_compute in H. lia. Qed.

(* refuted: DOM-SAMPLED *)
Theorem DOM_SAMPLED_not_strict :
  ~ forall W c_star L, 2 <= L ->
      NFE (monotone c_star) (packed W sampled) never L + 1 <= NFE (monotone c_star) (linear W sampled) never L.
Proof. intros H. specialize (H 1 always_right 3). vm_compute in H. lia. Qed.

(* refuted: DRAFTLEN *)
Theorem draft_length_not_one_less : ~ forall M W s, draft_length (step M (Both W) s) <= W - 2.
Proof. intros H. specialize (H (monotone always_right) 2 initial). vm_compute in H. lia. Qed.

(* refuted: PROGRESS *)
Theorem verifying_gains_not_two : ~ forall M k s, verifies k = true -> verified s + 2 <= verified (step M k s).
Proof. intros H. specialize (H (monotone always_right) Verify initial eq_refl). vm_compute in H. lia. Qed.

(* refuted: STOP *)
(* The call whose block is cut is not refunded: it cannot be counted only when its whole block fits. *)
Theorem stop_not_refunded :
  ~ forall M prog eos L n, busy prog -> NFE M prog eos L <= n <-> stop eos L + 1 <= pos M prog (n + 1).
Proof.
  intros H. specialize (H (monotone always_right) (packed 3 algorithm) never 2 1 (packed_busy _ _)).
  vm_compute in H. lia.
Qed.

Print Assumptions F_is_EQ6.
Print Assumptions LEMB1_monotone.
Print Assumptions LEMB1_progress.
Print Assumptions fresh_draft_ends_at_reach.
Print Assumptions LEMB2.
Print Assumptions THM32.
Print Assumptions THM32_as_in_the_paper.
Print Assumptions EQ5.
Print Assumptions EQ5_thresholds.
Print Assumptions DOM_WIDE.
Print Assumptions DOM_SAMPLED.
Print Assumptions stop_cuts.
Print Assumptions stop_refunds_nothing.
Print Assumptions no_output_no_call.
Print Assumptions verifying_gains.
Print Assumptions runs_end.
Print Assumptions packed_at_most_one_call_a_token.
Print Assumptions draft_length_after.
Print Assumptions draft_length_after_start.
Print Assumptions tokens_refine_positions.
Print Assumptions token_machine_emits_x.
Print Assumptions THM32_tokens.
