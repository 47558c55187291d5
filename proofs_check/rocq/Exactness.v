(** Exact sampling: any schedule in which every checked draft token carries the law it was drawn from is exact.

    The idea of the proof: draft tokens have been drawn, but nothing that happened since depends on them, so they may as well
    be drawn when they are checked. Then a call draws one token after the other from the target law (LEMB3), up to its first
    rejection, whatever the stored laws are; and the whole run does (THM3.3). Where those laws come from is nowhere used.

    Where the statements differ from the paper's:
    - Probabilities are rationals and the vocabulary is the tokens 0 .. V-1, so that everything here runs under [Compute].
    - The prompt is fixed; prefixes are output prefixes. The models know the prompt, as in spec/any_order.py.
    - A uniform number and the test u < alpha are one coin of probability alpha.
    - Two laws are equal when they give every rational function the same expectation, which is equality of probabilities.
    - The sigma-algebras of the paper are the arguments of functions: what a schedule proposes is a function of its past.
    - The stopping rule is the length limit or any predicate of the output so far: EOS, and end markers of several tokens.
    - A draft token's law may depend on the draft tokens before it (a tree of laws), as in speculative decoding with a
      separate autoregressive drafter; the paper's drafts are independent. A schedule sees the whole draft, also what was
      never checked. Not covered: a schedule that keeps unchecked tokens of an old draft after a rejection.
    - Runs have fuel; the theorems state how much is enough, which is the paper's termination.
    - The starts of E.2 are schedules like any other; two are instances here.

    [claim: ID] stands before a theorem that proves a claim, [refuted: ID] before one that disproves a wrong variant of it. *)

From Coq Require Import List Arith Lia Bool QArith Qminmax Lqa.
Import ListNotations.
Local Open Scope Q_scope.

(** ** Finite distributions *)

Definition dist (A : Type) := list (A * Q).

Fixpoint E {A} (d : dist A) (f : A -> Q) : Q :=
  match d with
  | [] => 0
  | (a, w) :: r => w * f a + E r f
  end.

Definition ret {A} (a : A) : dist A := [(a, 1)].

Definition bind {A B} (d : dist A) (k : A -> dist B) : dist B :=
  flat_map (fun aw => if Qeq_bool (snd aw) 0 then [] else map (fun bv => (fst bv, Qred (snd aw * snd bv))) (k (fst aw))) d.

Notation "x <- d ;; k" := (bind d (fun x => k)) (at level 61, d at next level, right associativity).

Definition same {A} (d e : dist A) : Prop := forall f, E d f == E e f.
Infix "~~" := same (at level 70).

Lemma E_cons {A} (a : A) w d f : E ((a, w) :: d) f = w * f a + E d f.
Proof. reflexivity. Qed.

Lemma E_ext {A} (d : dist A) f g : (forall a, f a == g a) -> E d f == E d g.
Proof. intros H. induction d as [|[a w] d IH]; simpl; [reflexivity|]. rewrite (H a), IH. reflexivity. Qed.

Lemma E_app {A} (d e : dist A) f : E (d ++ e) f == E d f + E e f.
Proof. induction d as [|[a w] d IH]; simpl; [ring|]. rewrite IH. ring. Qed.

Lemma E_bind {A B} (d : dist A) (k : A -> dist B) f : E (bind d k) f == E d (fun a => E (k a) f).
Proof.
  induction d as [|[a w] d IH]; simpl; [reflexivity|]. unfold bind in *. simpl. rewrite E_app, IH.
  apply Qplus_comp; [|reflexivity]. destruct (Qeq_bool w 0) eqn:Hw.
  - apply Qeq_bool_iff in Hw. simpl. rewrite Hw. ring.
  - clear. induction (k a) as [|[b v] l IHl]; simpl; [ring|].
    assert (Hr : Qred (w * v) == w * v) by apply Qred_correct. rewrite Hr, IHl. ring.
Qed.

Lemma E_ret {A} (a : A) f : E (ret a) f == f a.
Proof. unfold ret. simpl. ring. Qed.

Lemma E_lin {A} (d : dist A) f g x y : E d (fun a => x * f a + y * g a) == x * E d f + y * E d g.
Proof. induction d as [|[a w] d IH]; simpl; [ring|]. rewrite IH. ring. Qed.

Lemma E_scale {A} (d : dist A) f x : E d (fun a => x * f a) == x * E d f.
Proof. induction d as [|[a w] d IH]; simpl; [ring|]. rewrite IH. ring. Qed.

Lemma E_zero {A} (d : dist A) : E d (fun _ => 0) == 0.
Proof. induction d as [|[a w] d IH]; simpl; [reflexivity|]. rewrite IH. ring. Qed.

Arguments E : simpl never.
Arguments ret : simpl never.
Arguments bind : simpl never.

Ltac done_ret := rewrite ?E_ret; cbv beta; reflexivity.

(** ** Laws over the vocabulary, the acceptance test, the residual *)

Definition token := nat.
Definition law := list Q. (* probability of token 0, 1, ..., as in spec/sampling.py *)
Definition prob (l : law) (x : token) : Q := nth x l 0.
Definition coin (a : Q) : dist bool := [(true, a); (false, 1 - a)].

Lemma E_coin a f : E (coin a) f == a * f true + (1 - a) * f false.
Proof. unfold coin, E. ring. Qed.

Fixpoint sum (g : token -> Q) (xs : list token) : Q :=
  match xs with
  | [] => 0
  | x :: r => g x + sum g r
  end.

Lemma sum_ext g h xs : (forall x, In x xs -> g x == h x) -> sum g xs == sum h xs.
Proof. induction xs; simpl; intros H; [reflexivity|]. rewrite H, IHxs; [reflexivity|auto|auto]. Qed.

Lemma sum_lin g h a b xs : sum (fun x => a * g x + b * h x) xs == a * sum g xs + b * sum h xs.
Proof. induction xs; simpl; [ring|]. rewrite IHxs. ring. Qed.

Lemma sum_nonneg g xs : (forall x, In x xs -> 0 <= g x) -> 0 <= sum g xs.
Proof.
  induction xs as [|x xs IH]; simpl; intros H; [apply Qle_refl|].
  pose proof (H x (or_introl eq_refl)). assert (0 <= sum g xs) by auto. lra.
Qed.

Lemma sum_zero g xs : (forall x, In x xs -> 0 <= g x) -> sum g xs == 0 -> forall x, In x xs -> g x == 0.
Proof.
  induction xs as [|y xs IH]; simpl; intros H S x Hx; [contradiction|].
  assert (0 <= sum g xs) by (apply sum_nonneg; auto). pose proof (H y (or_introl eq_refl)).
  destruct Hx as [->|Hx]; [lra|]. apply IH; auto. lra.
Qed.

Lemma sum_one x g xs : In x xs -> NoDup xs -> (forall y, y <> x -> g y == 0) -> sum g xs == g x.
Proof.
  intros Hx Hd H. induction Hd as [|y xs Hy Hd IH]; simpl in *; [contradiction|].
  assert (Z : forall ys, ~ In x ys -> sum g ys == 0).
  { induction ys as [|z ys IHz]; simpl; intros N; [reflexivity|]. rewrite H by auto. rewrite IHz by auto. ring. }
  destruct Hx as [->|Hx].
  - rewrite (Z xs Hy). ring.
  - rewrite (IH Hx), H by (intros ->; contradiction). ring.
Qed.

Section Vocabulary.
Variable V : nat.

Definition vocabulary := seq 0 V.
Definition draw (l : law) : dist token := map (fun x => (x, prob l x)) vocabulary.
Definition is_law (l : law) : Prop := (forall x, In x vocabulary -> 0 <= prob l x) /\ sum (prob l) vocabulary == 1.
Definition tabulate (g : token -> Q) : law := map g vocabulary.

Definition alpha (p q : law) (x : token) : Q := Qmin 1 (prob p x / prob q x). (* ALG2.L5; x / 0 = 0 in Rocq *)

(* ALG2.L7. Where the residual has no mass a rejection has probability 0, and any law will do. *)
Definition residual (p q : law) : law :=
  let m := sum (fun x => Qmax 0 (prob p x - prob q x)) vocabulary in
  if Qeq_bool m 0 then p else tabulate (fun x => Qred (Qmax 0 (prob p x - prob q x) / m)).

Lemma E_draw l f : E (draw l) f == sum (fun x => prob l x * f x) vocabulary.
Proof. unfold draw. induction vocabulary as [|x xs IH]; [reflexivity|]. cbn [map sum]. rewrite E_cons, IH. reflexivity. Qed.

Lemma E_draw_const l c : is_law l -> E (draw l) (fun _ => c) == c.
Proof.
  intros [_ H]. rewrite E_draw. transitivity (c * sum (prob l) vocabulary + 0 * sum (prob l) vocabulary).
  - rewrite <- sum_lin. apply sum_ext. intros. ring.
  - rewrite H. ring.
Qed.

Lemma prob_tabulate g x : In x vocabulary -> prob (tabulate g) x = g x.
Proof.
  unfold prob, tabulate, vocabulary. intros H. apply in_seq in H. rewrite nth_indep with (d' := g 0%nat).
  - rewrite map_nth. rewrite seq_nth; [reflexivity|lia].
  - rewrite map_length, seq_length. lia.
Qed.

Lemma residual_law p q : is_law p -> is_law (residual p q).
Proof.
  intros Hp. unfold residual. set (r := fun x => Qmax 0 (prob p x - prob q x)). set (m := sum r vocabulary).
  destruct (Qeq_bool m 0) eqn:Hm; [exact Hp|]. apply Qeq_bool_neq in Hm.
  assert (Hr : forall x, 0 <= r x) by (intros; apply Q.le_max_l).
  assert (0 < m) by (pose proof (sum_nonneg r vocabulary (fun x _ => Hr x)); fold m in H; lra).
  split.
  - intros x Hx. rewrite prob_tabulate by exact Hx. cbv beta. change (Qmax 0 (prob p x - prob q x)) with (r x).
    rewrite Qred_correct. apply Qle_shift_div_l; [assumption|]. rewrite Qmult_0_l. apply Hr.
  - transitivity ((1 / m) * sum r vocabulary + 0 * sum r vocabulary).
    + rewrite <- sum_lin. apply sum_ext. intros x Hx. rewrite prob_tabulate by exact Hx. cbv beta.
      change (Qmax 0 (prob p x - prob q x)) with (r x). rewrite Qred_correct. field. exact Hm.
    + fold m. field. exact Hm.
Qed.

(* A draft token x is proposed and accepted with probability min(p(x), q(x)), whether or not q(x) is 0. *)
Lemma accepted p q : 0 <= p -> 0 <= q -> q * Qmin 1 (p / q) == Qmin p q /\ Qmin p q + Qmax 0 (p - q) == p.
Proof.
  intros Hp Hq. split.
  - destruct (Qeq_dec q 0) as [H|H].
    + rewrite H, Qmult_0_l. symmetry. apply Q.min_r. exact Hp.
    + assert (0 < q) by lra. destruct (Qlt_le_dec p q) as [L|L].
      * rewrite (Q.min_r 1), (Q.min_l p); [field; exact H|lra|]. apply Qle_shift_div_r; [assumption|]. lra.
      * rewrite (Q.min_l 1), (Q.min_r p); [ring|exact L|]. apply Qle_shift_div_l; [assumption|]. lra.
  - destruct (Qlt_le_dec p q) as [L|L].
    + rewrite Q.min_l, Q.max_l by lra. ring.
    + rewrite Q.min_r, Q.max_r by lra. ring.
Qed.

(* LEMB3 for expectations: what follows an accepted token and what follows a correction is valued by the same f. *)
Lemma accept_or_correct p q f : is_law p -> is_law q ->
  E (draw q) (fun d => alpha p q d * f d + (1 - alpha p q d) * E (draw (residual p q)) f) == E (draw p) f.
Proof.
  intros [Hp Sp] [Hq Sq]. set (c := E (draw (residual p q)) f).
  set (r := fun x => Qmax 0 (prob p x - prob q x)). set (low := fun x => Qmin (prob p x) (prob q x)).
  assert (A : forall x, In x vocabulary -> prob q x * alpha p q x == low x /\ low x + r x == prob p x).
  { intros x Hx. exact (accepted (prob p x) (prob q x) (Hp x Hx) (Hq x Hx)). }
  assert (M : sum r vocabulary == 1 - sum low vocabulary).
  { rewrite <- Sp. transitivity (1 * sum (prob p) vocabulary + (-1) * sum low vocabulary); [|ring].
    rewrite <- sum_lin. apply sum_ext. intros x Hx. destruct (A x Hx) as [_ H]. rewrite <- H. ring. }
  assert (C : sum r vocabulary * c == sum (fun x => r x * f x) vocabulary).
  { unfold c. rewrite E_draw. unfold residual. fold r. destruct (Qeq_bool (sum r vocabulary) 0) eqn:Hm.
    - apply Qeq_bool_iff in Hm. rewrite Hm, Qmult_0_l. symmetry.
      transitivity (0 * sum r vocabulary + 0 * sum r vocabulary); [|ring].
      rewrite <- sum_lin. apply sum_ext. intros x Hx.
      rewrite (sum_zero r vocabulary) with (x := x); [ring| |exact Hm|exact Hx]. intros. apply Q.le_max_l.
    - apply Qeq_bool_neq in Hm.
      transitivity (sum r vocabulary * sum (fun x => r x / sum r vocabulary * f x) vocabulary).
      + apply Qmult_comp; [reflexivity|]. apply sum_ext. intros x Hx. rewrite prob_tabulate by exact Hx. cbv beta.
        rewrite Qred_correct. reflexivity.
      + generalize dependent (sum r vocabulary). intros m _ Hm.
        transitivity (m * sum (fun x => r x / m * f x) vocabulary + 0 * sum r vocabulary); [ring|].
        rewrite <- sum_lin. apply sum_ext. intros. field. exact Hm. }
  rewrite !E_draw.
  transitivity (1 * sum (fun x => low x * f x) vocabulary
                + c * sum (fun x => 1 * prob q x + (-1) * low x) vocabulary).
  - rewrite <- sum_lin. apply sum_ext. intros x Hx. destruct (A x Hx) as [H _]. rewrite <- H. ring.
  - rewrite sum_lin, Sq. transitivity (1 * sum (fun x => low x * f x) vocabulary + 1 * (sum r vocabulary * c)).
    + rewrite M. ring.
    + rewrite C, <- sum_lin. apply sum_ext. intros x Hx. destruct (A x Hx) as [_ H]. rewrite <- H. ring.
Qed.

Definition one_token (p q : law) : dist token :=
  d <- draw q ;; ok <- coin (alpha p q d) ;; if ok : bool then ret d else draw (residual p q).

(* claim: LEMB3 *)
(** A token drawn from its stored law q, then accepted with probability min(1, p/q) or else replaced by a draw from the
    normalised positive part of p - q, has the target law p; zeros in p or q and p = q included. *)
Theorem LEMB3 (p q : law) : is_law p -> is_law q -> one_token p q ~~ draw p.
Proof.
  intros Hp Hq f. unfold one_token. rewrite E_bind, <- (accept_or_correct p q f Hp Hq). apply E_ext. intros d.
  rewrite E_bind, E_coin, E_ret. reflexivity.
Qed.

(** ** Drafts: tokens that carry the laws they were drawn from *)

Definition draft := list (token * law).

(* How a draft is drawn: a law, and for each token drawn from it what follows. *)
Inductive plan :=
  | Stop
  | Draw (q : law) (k : token -> plan).

Fixpoint proper (pl : plan) : Prop :=
  match pl with
  | Stop => True
  | Draw q k => is_law q /\ forall d, proper (k d)
  end.

Fixpoint sample (pl : plan) : dist draft :=
  match pl with
  | Stop => ret []
  | Draw q k => d <- draw q ;; r <- sample (k d) ;; ret ((d, q) :: r)
  end.

(* The paper's drafts: independent draws from laws fixed beforehand. *)
Definition independent (laws : list law) : plan := fold_right (fun q r => Draw q (fun _ => r)) Stop laws.

Lemma independent_proper laws : Forall is_law laws -> proper (independent laws).
Proof. induction 1; simpl; auto. Qed.

Lemma E_sample_const pl c : proper pl -> E (sample pl) (fun _ => c) == c.
Proof.
  induction pl as [|q k IH]; simpl; intros H; [done_ret|]. destruct H as [Hq Hk].
  rewrite E_bind, <- (E_draw_const q c Hq) at 1. apply E_ext. intros d.
  rewrite E_bind, <- (IH d (Hk d)). apply E_ext. intros D. done_ret.
Qed.

(** ** Verification, as in lines 3 to 8 of Algorithm 2 *)

Section Target.
Variable p : list token -> law.
Hypothesis p_law : forall P, is_law (p P).

(* The tests of all draft tokens, each with its own coin, whether or not verification reaches it. *)
Fixpoint tests (P : list token) (D : draft) : dist (list bool) :=
  match D with
  | [] => ret []
  | (d, q) :: D => b <- coin (alpha (p P) q d) ;; bs <- tests (P ++ [d]) D ;; ret (b :: bs)
  end.

Fixpoint leading (bs : list bool) : nat := (* ALG2.L6 *)
  match bs with
  | true :: bs => S (leading bs)
  | _ => O
  end.

Definition correction (P : list token) (D : draft) (h : nat) : law := (* ALG2.L7 *)
  let v := p (P ++ firstn h (map fst D)) in
  match nth_error D h with
  | Some (_, q) => residual v q
  | None => v
  end.

(* h and the block C, ALG2.L3-L8 *)
Definition verify (P : list token) (D : draft) : dist (nat * list token) :=
  bs <- tests P D ;;
  c <- draw (correction P D (leading bs)) ;;
  ret (leading bs, firstn (leading bs) (map fst D) ++ [c]).

Lemma E_tests_const P D c : E (tests P D) (fun _ => c) == c.
Proof.
  revert P. induction D as [|[d q] D IH]; intros P; simpl; [done_ret|]. rewrite E_bind, E_coin.
  assert (H : forall b : bool, E (bs <- tests (P ++ [d]) D;; ret (b :: bs)) (fun _ => c) == c).
  { intros b. rewrite E_bind, <- (IH (P ++ [d])). apply E_ext. intros bs. done_ret. }
  rewrite !H. ring.
Qed.

(* claim: LEMB4 *)
(* claim: EQ7 *)
(** Given the draft tokens before the i-th (from 0) and their tests (g is any function of them, such as 'verification reaches
    i'), the i-th draft token has the law it carries; the draft and its laws may have been fixed long before. *)
Theorem LEMB4 (pl : plan) : proper pl -> forall (i : nat) (P : list token) (g : draft -> list bool -> Q) (f : token -> Q),
  E (sample pl) (fun D => E (tests P D) (fun bs =>
    match nth_error D i with Some (d, q) => g (firstn i D) (firstn i bs) * f d | None => 0 end)) ==
  E (sample pl) (fun D => E (tests P D) (fun bs =>
    match nth_error D i with Some (d, q) => g (firstn i D) (firstn i bs) * E (draw q) f | None => 0 end)).
Proof.
  induction pl as [|q k IH]; simpl; intros H i P g f.
  - rewrite !E_ret. simpl. rewrite !E_ret. destruct i; reflexivity.
  - destruct H as [Hq Hk]. rewrite !E_bind. destruct i as [|i].
    + assert (R : forall e : token -> Q,
        E (draw q) (fun d => E (r <- sample (k d);; ret ((d, q) :: r)) (fun D => E (tests P D) (fun bs =>
          match nth_error D 0 with Some (d, q) => g (firstn 0 D) (firstn 0 bs) * e d | None => 0 end)))
        == E (draw q) (fun d => g [] [] * e d)).
      { intros e. apply E_ext. intros d. rewrite E_bind, <- (E_sample_const (k d) (g [] [] * e d) (Hk d)).
        apply E_ext. intros D. rewrite E_ret. cbn [nth_error firstn]. apply E_tests_const. }
      rewrite (R f). rewrite E_scale. rewrite <- (E_draw_const q (g [] [] * E (draw q) f) Hq).
      rewrite <- (R (fun _ => E (draw q) f)). apply E_ext. intros d. rewrite !E_bind. apply E_ext. intros D.
      rewrite !E_ret. reflexivity.
    + apply E_ext. intros d. rewrite !E_bind.
      assert (R : forall e : token * law -> Q,
        E (sample (k d)) (fun D => E (ret ((d, q) :: D)) (fun D => E (tests P D) (fun bs =>
          match nth_error D (S i) with Some dq => g (firstn (S i) D) (firstn (S i) bs) * e dq | None => 0 end)))
        == alpha (p P) q d * E (sample (k d)) (fun D => E (tests (P ++ [d]) D) (fun bs =>
             match nth_error D i with Some dq => g ((d, q) :: firstn i D) (true :: firstn i bs) * e dq | None => 0 end))
         + (1 - alpha (p P) q d) * E (sample (k d)) (fun D => E (tests (P ++ [d]) D) (fun bs =>
             match nth_error D i with Some dq => g ((d, q) :: firstn i D) (false :: firstn i bs) * e dq | None => 0 end))).
      { intros e. rewrite <- E_lin. apply E_ext. intros D. rewrite E_ret. cbn [tests nth_error].
        rewrite E_bind, E_coin, !E_bind.
        apply Qplus_comp; (apply Qmult_comp; [reflexivity|]); apply E_ext; intros bs; rewrite E_ret; reflexivity. }
      rewrite (E_ext (sample (k d)) _ (fun D => E (ret ((d, q) :: D)) (fun D => E (tests P D) (fun bs =>
          match nth_error D (S i) with Some dq => g (firstn (S i) D) (firstn (S i) bs) * f (fst dq) | None => 0 end))))
        by (intros D; rewrite !E_ret; apply E_ext; intros bs; destruct (nth_error _ _) as [[]|]; reflexivity).
      rewrite (E_ext (sample (k d)) (fun a => E (ret ((d, q) :: a)) (fun D => E (tests P D) (fun bs =>
          match nth_error D (S i) with Some (_, q0) => _ | None => _ end)))
          (fun D => E (ret ((d, q) :: D)) (fun D => E (tests P D) (fun bs =>
          match nth_error D (S i) with
          | Some dq => g (firstn (S i) D) (firstn (S i) bs) * E (draw (snd dq)) f | None => 0 end))))
        by (intros D; rewrite !E_ret; apply E_ext; intros bs; destruct (nth_error _ _) as [[]|]; reflexivity).
      rewrite (R (fun dq => f (fst dq))), (R (fun dq => E (draw (snd dq)) f)).
      assert (I : forall b, E (sample (k d)) (fun D => E (tests (P ++ [d]) D) (fun bs =>
          match nth_error D i with Some dq => g ((d, q) :: firstn i D) (b :: firstn i bs) * f (fst dq) | None => 0 end)) ==
        E (sample (k d)) (fun D => E (tests (P ++ [d]) D) (fun bs =>
          match nth_error D i with
          | Some dq => g ((d, q) :: firstn i D) (b :: firstn i bs) * E (draw (snd dq)) f | None => 0 end))).
      { intros b. transitivity (E (sample (k d)) (fun D => E (tests (P ++ [d]) D) (fun bs =>
          match nth_error D i with Some (x, _) => g ((d, q) :: firstn i D) (b :: firstn i bs) * f x | None => 0 end))).
        - apply E_ext; intros D; apply E_ext; intros bs; destruct (nth_error _ _) as [[]|]; reflexivity.
        - rewrite (IH d (Hk d) i (P ++ [d]) (fun D bs => g ((d, q) :: D) (b :: bs)) f).
          apply E_ext; intros D; apply E_ext; intros bs; destruct (nth_error _ _) as [[]|]; reflexivity. }
      rewrite !I. reflexivity.
Qed.

Lemma verify_nil P g : E (verify P []) g == E (draw (p P)) (fun c => g (O, [c])).
Proof.
  unfold verify. simpl. rewrite E_bind, E_ret. simpl. rewrite E_bind. unfold correction. simpl. rewrite app_nil_r.
  apply E_ext. intros c. done_ret.
Qed.

Lemma verify_cons P d q D g : E (verify P ((d, q) :: D)) g ==
  alpha (p P) q d * E (verify (P ++ [d]) D) (fun r => g (S (fst r), d :: snd r))
  + (1 - alpha (p P) q d) * E (draw (residual (p P) q)) (fun c => g (O, [c])).
Proof.
  unfold verify. cbn [tests]. rewrite !E_bind, E_coin, !E_bind.
  apply Qplus_comp; (apply Qmult_comp; [reflexivity|]).
  - apply E_ext. intros bs. rewrite E_ret. cbn [leading]. rewrite !E_bind.
    replace (correction P ((d, q) :: D) (S (leading bs))) with (correction (P ++ [d]) D (leading bs)).
    + apply E_ext. intros c. rewrite !E_ret. reflexivity.
    + unfold correction. simpl. rewrite <- app_assoc. reflexivity.
  - rewrite <- (E_tests_const (P ++ [d]) D (E (draw (residual (p P) q)) (fun c => g (O, [c])))).
    apply E_ext. intros bs. rewrite E_ret. cbn [leading]. rewrite E_bind. unfold correction. simpl. rewrite app_nil_r.
    apply E_ext. intros c. done_ret.
Qed.

(* Every block ends in a token of the verifier. *)
Lemma verify_ext P D g g' : (forall h C c, g (h, C ++ [c]) == g' (h, C ++ [c])) -> E (verify P D) g == E (verify P D) g'.
Proof.
  intros H. unfold verify. rewrite !E_bind. apply E_ext. intros bs. rewrite !E_bind. apply E_ext. intros c.
  rewrite !E_ret. apply H.
Qed.

Lemma E_verify_const P D c : E (verify P D) (fun _ => c) == c.
Proof.
  revert P. induction D as [|[d q] D IH]; intros P.
  - rewrite verify_nil. apply E_draw_const, p_law.
  - rewrite verify_cons, IH, E_draw_const by (apply residual_law, p_law). ring.
Qed.

(** ** Stops *)

Variable L : nat.
Variable ends : list token -> bool. (* does this output end in EOS, or in an end marker? *)

Definition stop (P : list token) : bool := (L <=? length P)%nat || ends P.

(* ALG2.L9-L10: up to the first token after which the output stops *)
Fixpoint cut (P C : list token) : list token :=
  match C with
  | [] => []
  | x :: C => x :: if stop (P ++ [x]) then [] else cut (P ++ [x]) C
  end.

Fixpoint ar (n : nat) (P : list token) : dist (list token) :=
  if stop P then ret P
  else match n with
       | O => ret P
       | S n => x <- draw (p P) ;; ar n (P ++ [x])
       end.

(* The law of autoregressive decoding, stopped *)
Definition ar_law : dist (list token) := ar L [].

Section Value.
Variable f : list token -> Q.

Definition value (P : list token) : Q := E (ar (L - length P) P) f.

Lemma value_stop P : stop P = true -> value P == f P.
Proof. unfold value. intros H. destruct (L - length P)%nat; simpl; rewrite H; done_ret. Qed.

Lemma going_short P : stop P = false -> (length P < L)%nat.
Proof. unfold stop. intros H. apply orb_false_elim in H. destruct H as [H _]. apply Nat.leb_gt in H. exact H. Qed.

Lemma value_step P : stop P = false -> value P == E (draw (p P)) (fun x => value (P ++ [x])).
Proof.
  intros H. pose proof (going_short P H). unfold value at 1. destruct (L - length P)%nat as [|n] eqn:Hn; [lia|].
  simpl. rewrite H, E_bind. apply E_ext. intros x. unfold value. rewrite app_length. simpl.
  replace (L - (length P + 1))%nat with n by lia. reflexivity.
Qed.

(* One call on any draft whose tokens carry the laws they were drawn from leaves the value where it was. *)
Lemma call_value pl P : proper pl -> stop P = false ->
  E (sample pl) (fun D => E (verify P D) (fun r => value (P ++ cut P (snd r)))) == value P.
Proof.
  revert P. induction pl as [|q k IH]; simpl; intros P Hpl HP.
  - rewrite E_ret, verify_nil, (value_step P HP). apply E_ext. intros c. simpl.
    destruct (stop (P ++ [c])); reflexivity.
  - destruct Hpl as [Hq Hk]. rewrite E_bind, (value_step P HP), <- (accept_or_correct (p P) q _ (p_law P) Hq).
    apply E_ext. intros d. rewrite E_bind.
    transitivity (alpha (p P) q d *
        E (sample (k d)) (fun D => E (verify (P ++ [d]) D) (fun r => value (P ++ cut P (d :: snd r)))) +
      (1 - alpha (p P) q d) *
        E (sample (k d)) (fun _ => E (draw (residual (p P) q)) (fun x => value (P ++ [x])))).
    + rewrite <- E_lin. apply E_ext. intros D. rewrite E_ret, verify_cons. apply Qplus_comp; [reflexivity|].
      apply Qmult_comp; [reflexivity|]. apply E_ext. intros c. simpl. destruct (stop (P ++ [c])); reflexivity.
    + rewrite E_sample_const by apply Hk. apply Qplus_comp; [|reflexivity]. apply Qmult_comp; [reflexivity|].
      simpl. destruct (stop (P ++ [d])) eqn:Hs.
      * rewrite <- (E_sample_const (k d) (value (P ++ [d])) (Hk d)). apply E_ext. intros D. apply E_verify_const.
      * rewrite <- (IH d (P ++ [d]) (Hk d) Hs). apply E_ext. intros D. apply E_ext. intros r.
        rewrite <- app_assoc. reflexivity.
Qed.

End Value.

(* The paper's words for the same things: the probability of an output, and the number a of tokens appended. *)

Definition indicator (y o : list token) : Q := if list_eq_dec Nat.eq_dec o y then 1 else 0.

Fixpoint chain (P y : list token) : Q := (* the product of p(y_k | P, y_<k) *)
  match y with
  | [] => 1
  | x :: y => prob (p P) x * chain (P ++ [x]) y
  end.

Fixpoint complete (P y : list token) : bool := (* the output stops after y, and not before *)
  match y with
  | [] => stop P
  | x :: y => negb (stop P) && complete (P ++ [x]) y
  end.

Lemma ar_extends n P f g : (forall y, f (P ++ y) == g (P ++ y)) -> E (ar n P) f == E (ar n P) g.
Proof.
  revert P. induction n as [|n IH]; intros P H; simpl; destruct (stop P); try (rewrite !E_ret, <- (app_nil_r P); apply H).
  rewrite !E_bind. apply E_ext. intros x. apply IH. intros y. rewrite <- app_assoc. apply H.
Qed.

Lemma ar_probability n P y : complete P y = true -> (length y <= n)%nat -> Forall (fun x => In x vocabulary) y ->
  E (ar n P) (indicator (P ++ y)) == chain P y.
Proof.
  revert n P. induction y as [|x y IH]; simpl; intros n P Hc Hn Hv.
  - rewrite app_nil_r. destruct n; simpl; rewrite Hc, E_ret; unfold indicator;
      (destruct (list_eq_dec _ _ _) as [_|N]; [reflexivity|contradiction]).
  - apply andb_true_iff in Hc. destruct Hc as [Hs Hc]. apply negb_true_iff in Hs. inversion_clear Hv as [|? ? Hx Hy].
    destruct n as [|n]; [lia|]. simpl. rewrite Hs, E_bind, E_draw.
    rewrite (sum_one x) by
      (exact Hx || apply seq_NoDup ||
       (intros x' N; rewrite (ar_extends n (P ++ [x']) _ (fun _ => 0));
        [rewrite E_zero; ring|intros y'; unfold indicator; destruct (list_eq_dec _ _ _) as [Eq|_]; [exfalso|reflexivity];
         rewrite <- app_assoc in Eq; apply app_inv_head in Eq; simpl in Eq; congruence])).
    apply Qmult_comp; [reflexivity|]. rewrite <- (IH n (P ++ [x]) Hc ltac:(lia) Hy). rewrite <- app_assoc. reflexivity.
Qed.

(** ** Schedules *)

Record call := Call {
  verified : bool; (* or did it only draft? *)
  drafted : list token; (* the draft in hand, all of it *)
  h : nat; (* draft tokens accepted *)
  block : list token (* tokens appended: a of them *)
}.

Definition past := list call. (* the last call first *)

Fixpoint output (t : past) : list token :=
  match t with
  | [] => []
  | c :: t => output t ++ block c
  end.

(* What a schedule decides before each call: does it verify, and how is the draft in hand drawn. *)
Record schedule := Schedule {
  verifies : past -> bool;
  propose : past -> dist draft
}.

Definition make_call (s : schedule) (t : past) (D : draft) : dist call :=
  if verifies s t then
    r <- verify (output t) D ;; ret (Call true (map fst D) (fst r) (cut (output t) (snd r)))
  else ret (Call false (map fst D) 0 []).

(* The loop. D is the draft in hand, drawn when it was proposed: at the end of the call before (ALG2.L12). *)
Fixpoint loop (s : schedule) (n : nat) (t : past) (D : draft) : dist past :=
  if stop (output t) then ret t
  else match n with
       | O => ret t
       | S n => c <- make_call s t D ;; D <- propose s (c :: t) ;; loop s n (c :: t) D
       end.

Definition run (s : schedule) (fuel : nat) : dist past := D <- propose s [] ;; loop s fuel [] D.
Definition output_law (s : schedule) (fuel : nat) : dist (list token) := t <- run s fuel ;; ret (output t).
Definition nfe_law (s : schedule) (fuel : nat) : dist nat := t <- run s fuel ;; ret (length t).

Definition carries_laws (s : schedule) : Prop := forall t, exists pl, proper pl /\ propose s t ~~ sample pl.

(* Calls since the last one that verified *)
Fixpoint idle (t : past) : nat :=
  match t with
  | [] => O
  | c :: t => if verified c then O else S (idle t)
  end.

Lemma loop_value s g f : carries_laws s -> (forall t, verifies s t = false -> (idle t < g)%nat) ->
  forall n t, stop (output t) = true \/ ((L - length (output t)) * S g <= n + idle t /\ idle t <= g)%nat ->
  E (propose s t) (fun D => E (loop s n t D) (fun t => f (output t))) == value f (output t).
Proof.
  intros HC HG. induction n as [|n IH]; intros t Ht; destruct (HC t) as [pl [Hpl Hs]]; rewrite (Hs _).
  1, 2: destruct (stop (output t)) eqn:HP.
  1, 3: rewrite (value_stop f _ HP), <- (E_sample_const pl (f (output t)) Hpl);
    apply E_ext; intros D; simpl; rewrite HP; done_ret.
  - pose proof (going_short _ HP). destruct Ht as [Ht|[Ht Hi]]; [congruence|]. exfalso. nia.
  - pose proof (going_short _ HP) as Hl. destruct Ht as [Ht|[Ht Hi]]; [congruence|].
    rewrite <- (call_value f pl (output t) Hpl HP). simpl. rewrite HP. unfold make_call.
    destruct (verifies s t) eqn:Hv.
    + apply E_ext. intros D. rewrite !E_bind. apply verify_ext. intros h' C c. rewrite E_ret. cbn [fst snd].
      rewrite E_bind, IH by (right; cbn [idle verified output block]; split; [|lia]; rewrite app_length;
        assert (1 <= length (cut (output t) (C ++ [c])))%nat by (destruct C; simpl; lia); nia).
      reflexivity.
    + pose proof (HG t Hv). rewrite (call_value f pl (output t) Hpl HP), <- (E_sample_const pl (value f (output t)) Hpl).
      apply E_ext. intros D. rewrite E_bind, E_ret, E_bind, IH.
      * cbn [output block]. rewrite app_nil_r. reflexivity.
      * right. cbn [idle verified output block]. rewrite app_nil_r. lia.
Qed.

(* claim: THM3.3 *)
(** Generalised: in any schedule in which every checked draft token carries the law it was drawn from given the past, the
    output has the autoregressive law stopped at its first end or at L tokens. The schedule chooses freely, from all that
    happened, how many tokens to draft and from which laws, and which calls verify; if it never makes more than g calls in a
    row that do not, L (g + 1) calls are enough. *)
Theorem exact_any_schedule (s : schedule) (g : nat) :
  carries_laws s -> (forall t, verifies s t = false -> (idle t < g)%nat) -> output_law s (L * S g) ~~ ar_law.
Proof.
  intros HC HG f. unfold output_law, run. rewrite E_bind, E_bind.
  transitivity (E (propose s []) (fun D => E (loop s (L * S g) [] D) (fun t => f (output t)))).
  - apply E_ext. intros D. apply E_ext. intros t. done_ret.
  - rewrite (loop_value s g f HC HG); [|right; simpl; lia].
    unfold value, ar_law. simpl. rewrite Nat.sub_0_r. reflexivity.
Qed.

(** ** The schedules of the paper *)

Variable W : nat.
Variable q : list token -> nat -> law. (* the drafter's law at the i-th position after a prefix, i = 1 .. W *)
Hypothesis q_law : forall P i, is_law (q P i).

Definition laws_from (P : list token) (skip : nat) : list law := map (fun j => q P (skip + j)) (seq 1 (W - skip)).

(* Algorithm 2: the proposals made from the prefix before the last call, without the first a *)
Definition packed_laws (t : past) : list law :=
  match t with
  | [] => []
  | c :: t => laws_from (output t) (length (block c))
  end.

Definition linear_laws (t : past) : list law :=
  match t with
  | [] => []
  | c :: t => if verified c then [] else laws_from (output t) 0
  end.

Definition linear_verifies (t : past) : bool :=
  match t with
  | [] => false
  | c :: t => negb (verified c)
  end.

(* Quadratic-SS drafts after the prefix and b draft tokens for every b; the first proposal is for the place of the
   verifier's own token. *)
Definition quadratic_laws (t : past) : list law :=
  match t with
  | [] => []
  | c :: t => laws_from (output t ++ firstn (h c) (drafted c)) 1
  end.

(* Branches(S): the largest b <= h in S supplies what it proposes beyond the tokens just appended. *)
Definition branch (S : list nat) (h : nat) : option nat :=
  fold_left (fun best b => if (b <=? h)%nat then Some (match best with Some x => Nat.max x b | None => b end) else best) S None.

Definition branches_laws (S : list nat) (t : past) : list law :=
  match t with
  | [] => []
  | c :: t => match branch S (h c) with
              | Some b => laws_from (output t ++ firstn b (drafted c)) (length (block c) - b)
              | None => []
              end
  end.

Definition always (t : past) : bool := true.
Definition from_laws (laws : past -> list law) (t : past) : dist draft := sample (independent (laws t)).

(* The starts of E.2: the first call drafts one position more; or it only emits a token, and the second only drafts. *)
Definition wide_laws (t : past) : list law :=
  match t with
  | [c] => map (fun j => q [] (length (block c) + j)) (seq 1 (S W - length (block c)))
  | _ => packed_laws t
  end.

Definition sampled_laws (t : past) : list law :=
  match t with
  | [_] => []
  | _ => packed_laws t
  end.

Definition sampled_verifies (t : past) : bool :=
  match t with
  | [c] => negb (verified c)
  | _ => true
  end.

Definition packed := Schedule always (from_laws packed_laws).
Definition packed_wide := Schedule always (from_laws wide_laws).
Definition packed_sampled := Schedule sampled_verifies (from_laws sampled_laws).
Definition linear := Schedule linear_verifies (from_laws linear_laws).
Definition quadratic := Schedule always (from_laws quadratic_laws).
Definition branches (S : list nat) := Schedule always (from_laws (branches_laws S)).

Lemma drafter_proper P skip js : proper (independent (map (fun j => q P (skip + j)) js)).
Proof. apply independent_proper, Forall_forall. intros l Hl. apply in_map_iff in Hl. destruct Hl as [j [<- _]]. apply q_law.
Qed.

Lemma laws_from_proper P skip : proper (independent (laws_from P skip)).
Proof. apply drafter_proper. Qed.

Lemma packed_proper t : proper (independent (packed_laws t)).
Proof. destruct t as [|c t]; [exact I|apply laws_from_proper]. Qed.

Lemma always_exact (laws : past -> list law) :
  (forall t, proper (independent (laws t))) -> output_law (Schedule always (from_laws laws)) L ~~ ar_law.
Proof.
  intros H. pose proof (exact_any_schedule (Schedule always (from_laws laws)) 0) as T. rewrite Nat.mul_1_r in T. apply T.
  - intros t. exists (independent (laws t)). split; [apply H|]. intros f. reflexivity.
  - intros t Ht. discriminate Ht.
Qed.

(* claim: THM3.3 *)
(** Algorithm 2: Packed-SS, with the draft retained from an older prefix and its stored laws, has the autoregressive law
    stopped at the first end or at L, for every width, drafter and verifier; L calls are enough. *)
Theorem THM3_3 : output_law packed L ~~ ar_law.
Proof. apply always_exact, packed_proper. Qed.

(* claim: THM3.3 *)
(** The same after a first call that drafts W + 1 positions. *)
Theorem packed_wide_exact : output_law packed_wide L ~~ ar_law.
Proof. apply always_exact. intros [|c [|c' t]]; [exact I|apply drafter_proper|apply packed_proper]. Qed.

(* claim: THM3.3 *)
(** The same after a call that only emits a token and one that only drafts. *)
Theorem packed_sampled_exact : output_law packed_sampled (L * 2) ~~ ar_law.
Proof.
  apply (exact_any_schedule packed_sampled 1).
  - intros t. exists (independent (sampled_laws t)). split; [|intros f; reflexivity].
    destruct t as [|c [|c' t]]; [exact I|exact I|apply packed_proper].
  - intros [|c [|c' t]] H; simpl in *; try discriminate H. destruct (verified c); [lia|discriminate H].
Qed.

(* claim: THM3.3 *)
(** The same for one output y that ends where decoding stops: its probability under Algorithm 2 is the product of the
    target's probabilities p(y_k | y_<k). *)
Theorem THM3_3_probability (y : list token) : complete [] y = true -> Forall (fun x => In x vocabulary) y ->
  E (output_law packed L) (indicator y) == chain [] y.
Proof.
  intros Hc Hv. rewrite (THM3_3 (indicator y)). apply (ar_probability L [] y Hc); [|exact Hv].
  assert (G : forall y P, complete P y = true -> (length P <= L -> length P + length y <= L)%nat).
  { clear. induction y as [|x y IH]; simpl; intros P Hc HL; [lia|]. apply andb_true_iff in Hc. destruct Hc as [Hs Hc].
    apply negb_true_iff, going_short in Hs. pose proof (IH _ Hc) as I. rewrite app_length in I. simpl in I. lia. }
  pose proof (G y [] Hc). simpl in H. lia.
Qed.

(* claim: THM3.3 *)
(** Linear-SS is exact; 2 L calls are enough. *)
Theorem linear_exact : output_law linear (L * 2) ~~ ar_law.
Proof.
  apply (exact_any_schedule linear 1).
  - intros t. exists (independent (linear_laws t)). split; [|intros f; reflexivity].
    destruct t as [|c t]; [exact I|]. simpl. destruct (verified c); [exact I|apply laws_from_proper].
  - intros [|c t] H; simpl in *; [lia|]. destruct (verified c); [lia|discriminate H].
Qed.

(* claim: THM3.3 *)
(** Quadratic-SS is exact. *)
Theorem quadratic_exact : output_law quadratic L ~~ ar_law.
Proof. apply always_exact. intros [|c t]; [exact I|apply laws_from_proper]. Qed.

(* claim: THM3.3 *)
(** Branches(S) is exact for every set S of branches. *)
Theorem branches_exact (S : list nat) : output_law (branches S) L ~~ ar_law.
Proof.
  apply always_exact. intros [|c t]; [exact I|]. simpl. destruct (branch S (h c)); [apply laws_from_proper|exact I].
Qed.

(* claim: BRANCH0 *)
(** Packed-SS is Branches({0}): the same laws after every past. *)
Theorem BRANCH0 (t : past) : branches_laws [O] t = packed_laws t.
Proof. destruct t as [|c t]; [reflexivity|]. simpl. rewrite app_nil_r, Nat.sub_0_r. reflexivity. Qed.

End Target.

(** ** Greedy decoding: Algorithm 1 *)

Section Greedy.
Variable v : list token -> token. (* the verifier's argmax after a prefix, ties broken somehow *)
Variable z : list token -> nat -> token. (* the drafter's *)
Hypothesis v_in : forall P, In (v P) vocabulary.
Hypothesis z_in : forall P i, In (z P i) vocabulary.
Variable L : nat.
Variable ends : list token -> bool.
Variable W : nat.

Definition point (x : token) : law := tabulate (fun y => if (y =? x)%nat then 1 else 0).
Definition points (P : list token) : law := point (v P).
Definition drafts (P : list token) (i : nat) : law := point (z P i).

Fixpoint matches (P D : list token) : nat := (* ALG1.L5 *)
  match D with
  | [] => O
  | d :: D => if (d =? v P)%nat then S (matches (P ++ [d]) D) else O
  end.

Definition greedy_call (t : past) (D : list token) : call := (* ALG1.L3-L8 *)
  let h := matches (output t) D in
  Call true D h (cut L ends (output t) (firstn h D ++ [v (output t ++ firstn h D)])).

Definition greedy_draft (P : list token) (a : nat) : list token := map (fun j => z P (a + j)) (seq 1 (W - a)). (* ALG1.L10 *)

Fixpoint algorithm1 (n : nat) (t : past) (D : list token) : past :=
  if stop L ends (output t) then t
  else match n with
       | O => t
       | S n => let c := greedy_call t D in algorithm1 n (c :: t) (greedy_draft (output t) (length (block c)))
       end.

Fixpoint greedy_ar (n : nat) (P : list token) : list token :=
  if stop L ends P then P
  else match n with
       | O => P
       | S n => greedy_ar n (P ++ [v P])
       end.

Lemma E_point x f : In x vocabulary -> E (draw (point x)) f == f x.
Proof.
  intros Hx. rewrite E_draw.
  rewrite (sum_ext _ (fun y => (if (y =? x)%nat then 1 else 0) * f y)).
  - rewrite (sum_one x); [rewrite Nat.eqb_refl; ring|exact Hx|apply seq_NoDup|].
    intros y N. apply Nat.eqb_neq in N. rewrite N. ring.
  - intros y Hy. unfold point. rewrite prob_tabulate by exact Hy. reflexivity.
Qed.

Lemma point_law x : In x vocabulary -> is_law (point x).
Proof.
  intros Hx. split.
  - intros y Hy. unfold point. rewrite prob_tabulate by exact Hy. destruct (y =? x)%nat; discriminate.
  - rewrite <- (E_point x (fun _ => 1) Hx), E_draw. apply sum_ext. intros. ring.
Qed.

Lemma alpha_point x y : In x vocabulary -> In y vocabulary -> alpha (point x) (point y) y == if (y =? x)%nat then 1 else 0.
Proof.
  intros Hx Hy. unfold alpha, point. rewrite !prob_tabulate by exact Hy. rewrite Nat.eqb_refl.
  destruct (y =? x)%nat; reflexivity.
Qed.

Lemma verify_points P D g : Forall (fun d => In d vocabulary) D ->
  E (verify points P (map (fun d => (d, point d)) D)) g ==
  g (matches P D, firstn (matches P D) D ++ [v (P ++ firstn (matches P D) D)]).
Proof.
  intros HD. revert P g. induction HD as [|d D Hd HD IH]; intros P g; simpl.
  - rewrite verify_nil, app_nil_r. unfold points. apply (E_point _ (fun c => g (O, [c])) (v_in P)).
  - rewrite verify_cons, IH. unfold points at 1 2 3.
    pose proof (accept_or_correct _ _ (fun c => g (O, [c])) (point_law _ (v_in P)) (point_law _ Hd)) as A.
    rewrite (E_point d _ Hd), (E_point _ _ (v_in P)) in A.
    rewrite (alpha_point _ _ (v_in P) Hd) in *. destruct (d =? v P)%nat eqn:Hdv; simpl.
    + rewrite <- app_assoc. simpl. match goal with |- 1 * ?a + _ == _ => transitivity a; [ring|reflexivity] end.
    + rewrite app_nil_r. rewrite Qmult_0_l, Qplus_0_l in *. exact A.
Qed.

Lemma sample_points D : Forall (fun d => In d vocabulary) D ->
  sample (independent (map point D)) ~~ ret (map (fun d => (d, point d)) D).
Proof.
  intros HD f. revert f. induction HD as [|d D Hd HD IH]; intros f; [reflexivity|]. simpl.
  rewrite E_bind, E_point by exact Hd. rewrite E_bind, IH, !E_ret. reflexivity.
Qed.

Lemma greedy_draft_in P a : Forall (fun d => In d vocabulary) (greedy_draft P a).
Proof. apply Forall_forall. intros d Hd. apply in_map_iff in Hd. destruct Hd as [j [<- _]]. apply z_in. Qed.

Lemma laws_from_points P a : laws_from W drafts P a = map point (greedy_draft P a).
Proof. unfold laws_from, greedy_draft. rewrite map_map. reflexivity. Qed.

(* claim: COR-GREEDY *)
(** On point masses Algorithm 2 is Algorithm 1: call by call, with probability 1. *)
Theorem algorithm2_is_algorithm1 (n : nat) : forall (t : past) (D : list token), Forall (fun d => In d vocabulary) D ->
  loop points L ends (packed W drafts) n t (map (fun d => (d, point d)) D) ~~ ret (algorithm1 n t D).
Proof.
  induction n as [|n IH]; intros t D HD f; simpl; destruct (stop L ends (output t)); try reflexivity.
  rewrite E_bind. unfold make_call. simpl. rewrite E_bind, verify_points by exact HD. rewrite E_ret, E_bind.
  unfold from_laws. cbn [packed_laws block fst snd]. rewrite laws_from_points.
  etransitivity; [apply (sample_points _ (greedy_draft_in _ _) _)|]. etransitivity; [apply @E_ret|].
  etransitivity; [apply (IH _ _ (greedy_draft_in _ _) f)|].
  unfold greedy_call. cbv zeta. cbn [block]. rewrite map_map, map_id. reflexivity.
Qed.

(* claim: COR-GREEDY *)
(** Algorithm 1 returns the greedy autoregressive output, stopped at its first end or at L. *)
Theorem COR_GREEDY : output (algorithm1 L [] []) = greedy_ar L [].
Proof.
  assert (A : forall n P f, E (ar points L ends n P) f == f (greedy_ar n P)).
  { induction n as [|n IH]; intros P f; simpl; destruct (stop L ends P); try apply E_ret.
    rewrite E_bind. unfold points at 1. rewrite E_point by apply v_in. apply IH. }
  assert (B : forall f, E (output_law points L ends (packed W drafts) L) f == f (output (algorithm1 L [] []))).
  { intros f. unfold output_law, run. rewrite !E_bind. etransitivity; [apply (@E_ret draft [])|].
    etransitivity; [apply (algorithm2_is_algorithm1 L [] [] (Forall_nil _) _)|]. rewrite !E_ret. reflexivity. }
  pose proof (THM3_3 points (fun P => point_law _ (v_in P)) L ends W drafts (fun P i => point_law _ (z_in P i))
                (indicator (greedy_ar L []))) as T.
  unfold ar_law in T. rewrite A, B in T. unfold indicator in T.
  destruct (list_eq_dec Nat.eq_dec (greedy_ar L []) (greedy_ar L [])) as [_|N]; [|contradiction].
  destruct (list_eq_dec Nat.eq_dec (output (algorithm1 L [] [])) (greedy_ar L [])) as [Eq|_]; [exact Eq|discriminate T].
Qed.

End Greedy.
End Vocabulary.

(** ** Lines 9 and 10 of Algorithm 2 in the paper's words, for EOS tokens and a length limit *)

Definition eos_ends (eos : token -> bool) (P : list token) : bool :=
  match rev P with
  | [] => false
  | x :: _ => eos x
  end.

Definition advance (L : nat) (eos : token -> bool) (P C : list token) : nat :=
  fold_right Nat.min (Nat.min (length C) (L - length P)) (filter (fun i => eos (nth (i - 1) C O)) (seq 1 (length C))).

(* claim: STOP *)
(** Cutting a block after its first stop is keeping its first a tokens, a the least of the block's length, the room under
    the limit, and the places of EOS. *)
Theorem cut_is_advance L eos C : forall P, (length P < L)%nat -> C <> [] ->
  cut L (eos_ends eos) P C = firstn (advance L eos P C) C.
Proof.
  induction C as [|x C IH]; [congruence|]. intros P HP _.
  assert (M : forall m l, fold_right Nat.min (S m) (map S l) = S (fold_right Nat.min m l)).
  { induction l as [|y l I]; [reflexivity|]. simpl map. simpl fold_right. rewrite I. reflexivity. }
  assert (A : advance L eos P (x :: C) = if eos x then 1%nat else
            S (fold_right Nat.min (Nat.min (length C) (L - length (P ++ [x])))
                 (filter (fun i => eos (nth (i - 1) C O)) (seq 1 (length C))))).
  { unfold advance. simpl length. rewrite app_length. simpl length.
    replace (L - length P)%nat with (S (L - (length P + 1)))%nat by lia.
    rewrite <- Nat.succ_min_distr. cbn [seq]. rewrite <- seq_shift. cbn [filter].
    change (nth (1 - 1) (x :: C) O) with x.
    assert (F : filter (fun i => eos (nth (i - 1) (x :: C) O)) (map S (seq 1 (length C))) =
                map S (filter (fun i => eos (nth (i - 1) C O)) (seq 1 (length C)))).
    { assert (G : forall l, Forall (fun i => 1 <= i)%nat l -> filter (fun i => eos (nth (i - 1) (x :: C) O)) (map S l) =
                  map S (filter (fun i => eos (nth (i - 1) C O)) l)).
      { clear. induction 1 as [|i l Hi Hl I]; [reflexivity|]. cbn [map filter]. rewrite I.
        replace (nth (S i - 1) (x :: C) O) with (nth (i - 1) C O)
          by (destruct i; [lia|]; simpl; rewrite Nat.sub_0_r; reflexivity).
        destruct (eos (nth (i - 1) C O)); reflexivity. }
      apply G, Forall_forall. intros i Hi. apply in_seq in Hi. lia. }
    rewrite F. destruct (eos x).
    - cbn [fold_right]. rewrite M. reflexivity.
    - rewrite M. reflexivity. }
  rewrite A. cbn [cut]. unfold stop at 1, eos_ends at 1. rewrite rev_unit. destruct (eos x) eqn:Hx.
  - rewrite orb_true_r. reflexivity.
  - rewrite orb_false_r. cbn [firstn]. f_equal. rewrite app_length. simpl length.
    destruct (L <=? length P + 1)%nat eqn:HL.
    + apply Nat.leb_le in HL. replace (L - (length P + 1))%nat with O by lia. rewrite Nat.min_0_r.
      assert (Z : forall l, fold_right Nat.min O l = O) by (induction l as [|y l I]; [reflexivity|simpl; rewrite I;
        apply Nat.min_0_r]).
      rewrite Z. reflexivity.
    + apply Nat.leb_gt in HL. destruct C as [|y C]; [simpl; destruct (fold_right _ _ _); reflexivity|].
      rewrite (IH (P ++ [x])) by (rewrite ?app_length; simpl; lia || discriminate).
      unfold advance. rewrite app_length. reflexivity.
Qed.

(** ** Wrong on purpose *)

(* The acceptance tests read laws computed anew from the prefix verified meanwhile, not the laws the draft was drawn from. *)
Definition fresh (V W : nat) (q : list token -> nat -> law) : schedule :=
  Schedule always (fun t => D <- sample V (independent (packed_laws W q t)) ;;
                            ret (combine (map fst D) (laws_from W q (output t) 0))).

Definition half : law := [1 # 2; 1 # 2].
Definition stale (P : list token) (i : nat) : law := match P with [] => [1; 0] | _ => half end.

Lemma half_law : is_law 2 half.
Proof. split; [|reflexivity]. intros x [<-|[<-|[]]]; discriminate. Qed.

Lemma stale_law P i : is_law 2 (stale P i).
Proof. destruct P; [|apply half_law]. split; [|reflexivity]. intros x [<-|[<-|[]]]; discriminate. Qed.

(* refuted: THM3.3 *)
(** Not exact: Algorithm 2 with fresh instead of stored laws. Two tokens, both models uniform but for a first drafter that
    always proposes token 0: fresh laws accept it always, so that the second output token is never 1. *)
Theorem fresh_is_wrong : ~ forall (V : nat) (p : list token -> law) (L : nat) (ends : list token -> bool) (W : nat) q,
  (forall P, is_law V (p P)) -> (forall P i, is_law V (q P i)) ->
  output_law V p L ends (fresh V W q) L ~~ ar_law V p L ends.
Proof.
  intros H. specialize (H 2%nat (fun _ => half) 2%nat (fun _ => false) 2%nat stale (fun _ => half_law) stale_law
                          (indicator [0; 1]%nat)).
  vm_compute in H. discriminate H.
Qed.

(* refuted: THM3.3 *)
(** Not enough: one call less than L. *)
Theorem fewer_calls_are_wrong : ~ forall (V : nat) (p : list token -> law) (L : nat) (ends : list token -> bool) (W : nat) q,
  (forall P, is_law V (p P)) -> (forall P i, is_law V (q P i)) ->
  output_law V p L ends (packed V W q) (L - 1) ~~ ar_law V p L ends.
Proof.
  intros H. specialize (H 2%nat (fun _ => half) 1%nat (fun _ => false) 2%nat stale (fun _ => half_law) stale_law
                          (indicator [0]%nat)).
  vm_compute in H. discriminate H.
Qed.

(** ** To run it: laws from tables, equal outcomes merged *)

Fixpoint lookup {A} (rows : list (list token * A)) (otherwise : A) (P : list token) : A :=
  match rows with
  | [] => otherwise
  | (key, a) :: rows => if list_eq_dec Nat.eq_dec key P then a else lookup rows otherwise P
  end.

Fixpoint add {A} (same : A -> A -> bool) (a : A) (w : Q) (d : dist A) : dist A :=
  match d with
  | [] => [(a, Qred w)]
  | (b, v) :: d => if same a b then (b, Qred (w + v)) :: d else (b, v) :: add same a w d
  end.

Definition collect {A} (same : A -> A -> bool) (d : dist A) : dist A :=
  fold_right (fun aw d => if Qeq_bool (snd aw) 0 then d else add same (fst aw) (snd aw) d) [] d.

(* Rocq prints some rationals as decimals; these are always numerator and denominator. *)
Definition fractions {A} (d : dist A) : list (A * Z * positive) := map (fun aw => (fst aw, Qnum (snd aw), Qden (snd aw))) d.

Definition same_output (x y : list token) : bool := if list_eq_dec Nat.eq_dec x y then true else false.

(** Merging equal outcomes changes no law. *)
Theorem collect_same {A} (same : A -> A -> bool) (d : dist A) :
  (forall a b, same a b = true -> a = b) -> collect same d ~~ d.
Proof.
  intros H f.
  assert (I : forall a w e, E (add same a w e) f == w * f a + E e f).
  { intros a w. induction e as [|[b v] e I]; simpl; rewrite ?E_cons.
    - assert (R : Qred w == w) by apply Qred_correct. rewrite R. reflexivity.
    - destruct (same a b) eqn:S; rewrite ?E_cons.
      + apply H in S. subst b. assert (R : Qred (w + v) == w + v) by apply Qred_correct. rewrite R. ring.
      + rewrite I. ring. }
  induction d as [|[a w] d IH]; [reflexivity|]. simpl. rewrite E_cons. destruct (Qeq_bool w 0) eqn:Z.
  - apply Qeq_bool_iff in Z. rewrite IH, Z. ring.
  - rewrite I, IH. reflexivity.
Qed.

Print Assumptions LEMB3.
Print Assumptions LEMB4.
Print Assumptions exact_any_schedule.
Print Assumptions THM3_3.
Print Assumptions THM3_3_probability.
Print Assumptions packed_wide_exact.
Print Assumptions packed_sampled_exact.
Print Assumptions linear_exact.
Print Assumptions quadratic_exact.
Print Assumptions branches_exact.
Print Assumptions BRANCH0.
Print Assumptions algorithm2_is_algorithm1.
Print Assumptions COR_GREEDY.
Print Assumptions cut_is_advance.
Print Assumptions fresh_is_wrong.
Print Assumptions fewer_calls_are_wrong.
Print Assumptions collect_same.
