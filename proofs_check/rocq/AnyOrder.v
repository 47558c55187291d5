(** Any-order verification, greedy (Algorithm 3): its output is the serial reference's under the orders and group sizes that
    it chose, and it ends.

    The idea of the proof: a token is accepted only if the verifier would have put it there, given the tokens accepted before
    it; so a call is a piece of serial decoding, whatever the draft and the order are. It resolves at least one position.

    Where the statements differ from the paper's:
    - The prompt is fixed and known to the models, as in spec/any_order.py; the verifier and the drafter are their argmax
      tokens, ties broken somehow.
    - An order policy is any function of the past calls and the active positions. So it may use scores of earlier calls,
      which are functions of the past. The serial reference holds even if it is no permutation; to end, it must be one.
    - PROPC1 is proved for any drafts, with Packed-SS, Linear-SS and Quadratic-SS as instances.
    - The ends of an output are any function of its pairs, for EOS and for end markers of several tokens; what is special
      to EOS is said where it is used.
    - Dominance from left to right is for the start of Algorithm 3; the start `prompt` adds one call to both schedules.

    [claim: ID] stands before a theorem that proves a claim, [refuted: ID] before one that disproves a wrong variant of it. *)

From Coq Require Import List Arith Lia Bool Permutation.
Import ListNotations.

Definition pairs := list (nat * nat). (* (position, token), positions from 1 *)

Fixpoint find (P : pairs) (j : nat) : option nat :=
  match P with
  | [] => None
  | (i, x) :: P => if i =? j then Some x else find P j
  end.

Definition resolved (P : pairs) (j : nat) : bool :=
  match find P j with
  | Some _ => true
  | None => false
  end.

Lemma find_app P C j : find (P ++ C) j = match find P j with Some x => Some x | None => find C j end.
Proof. induction P as [|[i x] P IH]; simpl; [reflexivity|]. destruct (i =? j); [reflexivity|apply IH]. Qed.

Lemma resolved_in P j : resolved P j = true <-> In j (map fst P).
Proof.
  unfold resolved. induction P as [|[i x] P IH]; simpl; [split; [discriminate|contradiction]|].
  destruct (i =? j) eqn:H; [apply Nat.eqb_eq in H; tauto|]. apply Nat.eqb_neq in H. rewrite IH. tauto.
Qed.

Definition unresolved (P : pairs) (E : nat) : list nat := filter (fun j => negb (resolved P j)) (seq 1 E).

Lemma E_falls s' D : fold_right Nat.min s' D <= s'.
Proof. induction D as [|e D IH]; simpl; lia. Qed.

Lemma find_filter P E j : j <= E -> find (filter (fun jx => fst jx <=? E) P) j = find P j.
Proof.
  intros H. induction P as [|[i x] P IH]; simpl; [reflexivity|]. destruct (i <=? E) eqn:HE; simpl.
  - rewrite IH. reflexivity.
  - apply Nat.leb_gt in HE. assert (N : i =? j = false) by (apply Nat.eqb_neq; lia). rewrite N. exact IH.
Qed.

Lemma unresolved_in P E j : In j (unresolved P E) <-> 1 <= j <= E /\ resolved P j = false.
Proof. unfold unresolved. rewrite filter_In, in_seq, negb_true_iff. intuition lia. Qed.

Section AnyOrder.
Variables (W L : nat).
Variable v : pairs -> nat -> nat. (* the verifier's argmax at a position, after these pairs *)
Variable z : pairs -> nat -> nat. (* the drafter's *)
Variable ends : pairs -> list nat. (* the positions at which an output with these pairs may end *)

Definition active (P : pairs) (E : nat) : list nat := (* ALG3.L3-L4 *)
  match unresolved P E with
  | [] => []
  | l :: _ => filter (fun j => j <? l + W) (unresolved P E)
  end.

(** ** One call *)

Fixpoint available (D : pairs) (pi : list nat) : pairs := (* ALG3.L6: the first kappa ranks *)
  match pi with
  | [] => []
  | j :: pi => match find D j with
               | Some x => (j, x) :: available D pi
               | None => []
               end
  end.

Definition predictions (P d : pairs) (pi : list nat) : list nat := (* EQ8 ALG3.L7 *)
  map (fun r => v (P ++ firstn r d) (nth r pi 0)) (seq 0 (Nat.min (S (length d)) (length pi))).

Fixpoint agree (xs ys : list nat) : nat := (* ALG3.L9 *)
  match xs, ys with
  | x :: xs, y :: ys => if x =? y then S (agree xs ys) else 0
  | _, _ => 0
  end.

Definition verify (P D : pairs) (pi : list nat) : nat * pairs :=
  let d := available D pi in
  let vs := predictions P d pi in
  let h := agree (map snd d) vs in
  (h, firstn (Nat.min (S h) (length pi)) (combine pi vs)). (* ALG3.L10 *)

Definition append (s : pairs * nat) (C : pairs) : pairs * nat := (* ALG3.L11-L13 *)
  let E := fold_right Nat.min (snd s) (ends (fst s ++ C)) in
  (filter (fun jx => fst jx <=? E) (fst s ++ C), E).

(** ** Schedules and runs *)

Record call := Call {
  verified : bool; (* or did it only draft? *)
  pi : list nat; (* the order *)
  h : nat; (* draft tokens accepted *)
  C : pairs (* accepted before stopping *)
}.

Definition past := list call. (* the last call first *)

Fixpoint state (t : past) : pairs * nat := (* P and E *)
  match t with
  | [] => ([], L)
  | c :: t => if verified c then append (state t) (C c) else state t
  end.

Record schedule := Schedule {
  verifies : past -> bool;
  drafts : past -> pairs; (* the draft in hand *)
  order : past -> list nat -> list nat
}.

Definition make_call (s : schedule) (t : past) : call :=
  let (P, E) := state t in
  let o := order s t (active P E) in
  if verifies s t then let r := verify P (drafts s t) o in Call true o (fst r) (snd r) else Call false o 0 [].

Definition finished (t : past) : bool := (* ALG3.L2 *)
  match unresolved (fst (state t)) (snd (state t)) with
  | [] => true
  | _ => false
  end.

Fixpoint run (s : schedule) (n : nat) (t : past) : past :=
  if finished t then t
  else match n with
       | 0 => t
       | S n => run s n (make_call s t :: t)
       end.

Definition output (s : pairs * nat) : list (option nat) := map (find (fst s)) (seq 1 (snd s)). (* ALG3.L18 *)

(* PROPC1's reference: in each call's group, one token after the other, given all tokens before it. *)
Fixpoint serial_block (P : pairs) (js : list nat) : pairs :=
  match js with
  | [] => []
  | j :: js => (j, v P j) :: serial_block (P ++ [(j, v P j)]) js
  end.

Fixpoint serial (t : past) : pairs * nat :=
  match t with
  | [] => ([], L)
  | c :: t => if verified c then append (serial t) (serial_block (fst (serial t)) (firstn (length (C c)) (pi c)))
              else serial t
  end.

Lemma verify_cons P D j o : verify P D (j :: o) =
  match find D j with
  | Some x => if x =? v P j then let r := verify (P ++ [(j, x)]) D o in (S (fst r), (j, x) :: snd r) else (0, [(j, v P j)])
  | None => (0, [(j, v P j)])
  end.
Proof.
  unfold verify. cbn [available]. destruct (find D j) as [x|]; [|simpl; rewrite app_nil_r; reflexivity].
  set (d := available D o).
  assert (H : predictions P ((j, x) :: d) (j :: o) = v P j :: predictions (P ++ [(j, x)]) d o).
  { unfold predictions. cbn [length]. rewrite <- Nat.succ_min_distr. cbn [seq map firstn nth]. rewrite app_nil_r. f_equal.
    rewrite <- seq_shift, map_map. apply map_ext. intros r. cbn [firstn nth]. rewrite <- app_assoc. reflexivity. }
  rewrite H. cbn [map snd agree combine length]. rewrite <- Nat.succ_min_distr. cbn [firstn].
  destruct (x =? v P j) eqn:Hx.
  - apply Nat.eqb_eq in Hx. subst x. reflexivity.
  - reflexivity.
Qed.

Lemma verify_nil P D : verify P D [] = (0, []).
Proof. reflexivity. Qed.

Lemma verify_serial P D o : snd (verify P D o) = serial_block P (firstn (length (snd (verify P D o))) o).
Proof.
  revert P. induction o as [|j o IH]; intros P; [reflexivity|]. rewrite verify_cons.
  destruct (find D j) as [x|]; [|reflexivity]. destruct (x =? v P j) eqn:Hx; [|reflexivity].
  apply Nat.eqb_eq in Hx. subst x. cbn [snd length firstn serial_block]. f_equal. apply IH.
Qed.

Lemma state_is_serial s n t : state t = serial t -> state (run s n t) = serial (run s n t).
Proof.
  revert t. induction n as [|n IH]; intros t Ht; simpl; destruct (finished t); try exact Ht.
  apply IH. cbn [state serial]. rewrite <- Ht. unfold make_call. destruct (state t) as [P E]. cbn [fst].
  destruct (verifies s t); [|reflexivity]. cbn [C pi verified]. f_equal. apply verify_serial.
Qed.

(* claim: PROPC1 *)
(** After any number of calls, the accepted pairs and the last position to generate are those of the serial reference under
    the orders and group sizes that the run chose, for every verifier, draft, order policy and rule of ending; so the
    outputs are equal. *)
Theorem PROPC1 (s : schedule) (n : nat) :
  state (run s n []) = serial (run s n []) /\ output (state (run s n [])) = output (serial (run s n [])).
Proof. pose proof (state_is_serial s n [] eq_refl) as H. rewrite <- H. auto. Qed.

(** ** Termination *)

(* The order ranks the active positions, before every call of a run; I is what a proof may know of the calls before. *)
Definition permutes (s : schedule) (I : past -> Prop) : Prop := I [] /\ forall t, I t ->
  I (make_call s t :: t) /\
  let U := active (fst (state t)) (snd (state t)) in Permutation (order s t U) U.

Fixpoint idle (t : past) : nat := (* calls since the last one that verified *)
  match t with
  | [] => 0
  | c :: t => if verified c then 0 else S (idle t)
  end.

Lemma active_in P E j : In j (active P E) -> In j (unresolved P E).
Proof. unfold active. destruct (unresolved P E) as [|l r]; [auto|]. rewrite filter_In. tauto. Qed.

Lemma append_resolves s c j : In j (unresolved (fst s) (snd s)) -> In j (map fst c) ->
  length (unresolved (fst (append s c)) (snd (append s c))) < length (unresolved (fst s) (snd s)).
Proof.
  intros Hu Hc. change (length (j :: unresolved (fst (append s c)) (snd (append s c))) <= length (unresolved (fst s) (snd s))).
  apply NoDup_incl_length.
  - constructor; [|apply NoDup_filter, seq_NoDup]. intros Hj. apply unresolved_in in Hj. destruct Hj as [Hj Hr].
    unfold append in Hr, Hj. cbn [fst snd] in *. unfold resolved in Hr. rewrite find_filter in Hr by lia.
    rewrite find_app in Hr. apply resolved_in in Hc. unfold resolved in Hc.
    destruct (find (fst s) j), (find c j); discriminate.
  - intros i [<-|Hi]; [exact Hu|]. apply unresolved_in in Hi. apply unresolved_in.
    destruct Hi as [Hi Hr]. unfold append in *. cbn [fst snd] in *. pose proof (E_falls (snd s) (ends (fst s ++ c))).
    split; [lia|]. unfold resolved in *. rewrite find_filter in Hr by lia. rewrite find_app in Hr.
    destruct (find (fst s) i); [discriminate Hr|reflexivity].
Qed.

Lemma verify_first P D j o : In j (map fst (snd (verify P D (j :: o)))).
Proof. rewrite verify_cons. destruct (find D j) as [x|]; [destruct (x =? v P j)|]; left; reflexivity. Qed.

Lemma active_nonempty P E : 1 <= W -> unresolved P E <> [] -> active P E <> [].
Proof.
  unfold active. intros HW. destruct (unresolved P E) as [|l r]; [congruence|]. intros _. simpl.
  assert (H : l <? l + W = true) by (apply Nat.ltb_lt; lia). rewrite H. discriminate.
Qed.

Lemma run_finishes s I g : 1 <= W -> permutes s I -> (forall t, verifies s t = false -> idle t < g) ->
  forall n t, I t -> length (unresolved (fst (state t)) (snd (state t))) * S g <= n + idle t -> idle t <= g ->
  finished (run s n t) = true /\ length (run s n t) <= n + length t.
Proof.
  intros HW [_ Hp] Hg. induction n as [|n IH]; intros t HI Hn Hi; simpl; destruct (finished t) eqn:Hf; try (split;
    [exact Hf|lia]).
  - unfold finished in Hf. destruct (unresolved _ _); [discriminate Hf|]. simpl in Hn. lia.
  - assert (G : finished (run s n (make_call s t :: t)) = true
                /\ length (run s n (make_call s t :: t)) <= n + length (make_call s t :: t)); [|simpl in G; split; [tauto|lia]].
    assert (U : unresolved (fst (state t)) (snd (state t)) <> []) by (unfold finished in Hf; destruct (unresolved _ _);
      congruence).
    apply IH.
    + apply Hp, HI.
    + cbn [state idle]. destruct (Hp t HI) as [_ Pm].
      unfold make_call in *. destruct (state t) as [P E] eqn:Hs. cbn [fst snd] in *. destruct (verifies s t) eqn:Hv;
        cbn [C verified] in *.
      * enough (length (unresolved (fst (append (P, E) (snd (verify P (drafts s t) (order s t (active P E))))))
                        (snd (append (P, E) (snd (verify P (drafts s t) (order s t (active P E)))))))
                < length (unresolved P E)) by nia.
        pose proof (active_nonempty P E HW U) as A.
        destruct (order s t (active P E)) as [|j o] eqn:Ho; [apply Permutation_nil in Pm; congruence|].
        apply (append_resolves (P, E) _ j); [|apply verify_first]. apply active_in, (Permutation_in _ Pm). left. reflexivity.
      * pose proof (Hg t Hv). cbn [fst snd]. lia.
    + cbn [idle]. unfold make_call. destruct (state t) as [P E]. destruct (verifies s t) eqn:Hv; cbn [verified]; [lia|].
      apply Hg in Hv. lia.
Qed.

(* claim: PROGRESS *)
(** Algorithm 3 ends for every order policy that ranks the active positions by the past, within L calls if each verifies,
    and within L (g + 1) if a schedule never makes more than g calls in a row that do not. *)
Theorem any_order_terminates (s : schedule) (I : past -> Prop) (g : nat) :
  1 <= W -> permutes s I -> (forall t, verifies s t = false -> idle t < g) ->
  finished (run s (L * S g) []) = true /\ length (run s (L * S g) []) <= L * S g.
Proof.
  intros HW Hp Hg. destruct (run_finishes s I g HW Hp Hg (L * S g) []) as [A B]; simpl; [apply Hp| |lia|simpl in B; split;
    [exact A|lia]].
  assert (length (unresolved [] L) <= L); [|nia].
  rewrite <- (seq_length L 1) at 2. apply NoDup_incl_length; [apply NoDup_filter, seq_NoDup|].
  intros j Hj. apply filter_In in Hj. tauto.
Qed.

(* claim: PROPC1 *)
(** A finished run has a token at every output position up to E. *)
Theorem finished_output (t : past) : finished t = true -> ~ In None (output (state t)).
Proof.
  unfold finished, output. destruct (state t) as [P E]. cbn [fst snd]. intros H N. apply in_map_iff in N.
  destruct N as [j [Hj Hin]]. apply in_seq in Hin.
  assert (U : In j (unresolved P E)) by (apply unresolved_in; unfold resolved; rewrite Hj; split; [lia|reflexivity]).
  destruct (unresolved P E); [contradiction U|discriminate H].
Qed.

(** ** The schedules of Appendix C, for any order policy *)

Variable policy : past -> list nat -> list nat.

(* J_t: what of the active positions is still open after the call *)
Definition still_open (c : call) (t : past) : list nat :=
  let (P, E) := state (c :: t) in
  filter (fun j => negb (resolved P j) && (j <=? E)) (active (fst (state t)) (snd (state t))).

Definition propose (P : pairs) (js : list nat) : pairs := map (fun j => (j, z P j)) js.

Definition packed_drafts (t : past) : pairs := (* ALG3.L8, L14-L15 *)
  match t with
  | [] => []
  | c :: t => propose (fst (state t)) (still_open c t)
  end.

Definition quadratic_drafts (t : past) : pairs := (* the branch that follows the h accepted draft pairs *)
  match t with
  | [] => []
  | c :: t => propose (fst (state t) ++ firstn (h c) (C c)) (still_open c t)
  end.

Definition linear_drafts (t : past) : pairs := (* all active positions, in a call that does nothing else *)
  match t with
  | [] => []
  | c :: t => if verified c then [] else propose (fst (state t)) (active (fst (state t)) (snd (state t)))
  end.

Definition linear_verifies (t : past) : bool :=
  match t with
  | [] => false
  | c :: _ => negb (verified c)
  end.

Definition linear_order (t : past) (U : list nat) : list nat := (* fixed before the drafting call *)
  match t with
  | c :: _ => if verified c then policy t U else pi c
  | [] => policy t U
  end.

Definition always (t : past) : bool := true.
Definition packed := Schedule always packed_drafts policy. (* Algorithm 3 *)
Definition quadratic := Schedule always quadratic_drafts policy.
Definition linear := Schedule linear_verifies linear_drafts linear_order.

(* claim: PROGRESS *)
(** Algorithm 3 makes at most L calls and then has a token at every position up to E. *)
Theorem algorithm3_terminates : 1 <= W -> (forall t U, Permutation (policy t U) U) ->
  finished (run packed L []) = true /\ length (run packed L []) <= L /\ ~ In None (output (state (run packed L []))).
Proof.
  intros HW Hp. pose proof (any_order_terminates packed (fun _ => True) 0 HW) as T. rewrite Nat.mul_1_r in T.
  destruct T as [A B]; [split; [exact I|intros t _; split; [exact I|apply Hp]]|intros t Ht; discriminate Ht|]. split;
    [exact A|]. split; [exact B|apply finished_output, A].
Qed.

(* claim: PROGRESS *)
(** The two-call Linear-SS (ASSD), its order fixed before the drafting call, makes at most 2 L calls. *)
Theorem linear_terminates : 1 <= W -> (forall t U, Permutation (policy t U) U) ->
  finished (run linear (L * 2) []) = true /\ length (run linear (L * 2) []) <= L * 2.
Proof.
  intros HW Hp. apply (any_order_terminates linear (fun t => match t with
    | c :: t' => verified c = false -> let (P, E) := state t in Permutation (pi c) (active P E)
    | [] => True end) 1 HW).
  - split; [exact I|]. intros t HI. split.
    + unfold make_call. destruct (state t) as [P E] eqn:Hs. simpl verifies. destruct (linear_verifies t) eqn:Hv;
      [discriminate|].
      intros _. cbn [state verified pi]. rewrite Hs. simpl order. destruct t as [|c t]; [apply Hp|]. simpl in Hv |- *.
      destruct (verified c); [apply Hp|discriminate Hv].
    + cbv zeta. destruct t as [|c t]; [apply Hp|]. unfold linear. cbn [order]. unfold linear_order.
      destruct (state (c :: t)) as [P E]. cbn [fst snd].
      destruct (verified c) eqn:Hv; [apply Hp|apply HI; reflexivity].
  - intros [|c t] H; simpl in *; [lia|]. destruct (verified c); [lia|discriminate H].
Qed.

End AnyOrder.

(** ** Stops *)

(* The positions of EOS tokens *)
Definition eos_positions (eos : nat -> bool) (P : pairs) : list nat := map fst (filter (fun jx => eos (snd jx)) P).

(* claim: STOP *)
(** With EOS tokens: E only falls; no accepted pair lies beyond E, none before E is EOS; and E is the limit L or holds EOS. *)
Theorem eos_stops (L : nat) (eos : nat -> bool) (t : past) :
  let (P, E) := state L (eos_positions eos) t in
  E <= L /\ (forall j x, In (j, x) P -> j <= E /\ (eos x = true -> j = E)) /\ (E = L \/ exists x, In (E, x) P /\ eos x = true).
Proof.
  induction t as [|c t IH]; simpl; [split; [lia|split; [contradiction|auto]]|].
  destruct (verified c); [|exact IH].
  destruct (state L (eos_positions eos) t) as [P E]. destruct IH as [HL [HP HE]]. unfold append. cbn [fst snd].
  set (D := eos_positions eos (P ++ C c)). set (E' := fold_right Nat.min E D).
  assert (HE' : E' <= E) by apply E_falls.
  assert (Min : forall j, In j D -> E' <= j).
  { unfold E'. clearbody D. clear. induction D as [|e D I]; simpl; [contradiction|]. intros j [<-|Hj]; [lia|].
  specialize (I j Hj). lia. }
  assert (Which : E' = E \/ In E' D).
  { unfold E'. clearbody D. clear. induction D as [|e D I]; simpl; [auto|].
    destruct (Nat.min_dec e (fold_right Nat.min E D)) as [->| ->]; [auto|]. destruct I as [->|I]; [auto|auto]. }
  assert (HD : forall j, In j D <-> exists x, In (j, x) (P ++ C c) /\ eos x = true).
  { intros j. unfold D, eos_positions. rewrite in_map_iff. split.
    - intros [[i x] [<- H]]. apply filter_In in H. exists x. exact H.
    - intros [x H]. exists (j, x). split; [reflexivity|]. apply filter_In. exact H. }
  split; [lia|]. split.
  - intros j x H. apply filter_In in H. cbn [fst] in H. destruct H as [H Hj]. apply Nat.leb_le in Hj. split; [exact Hj|].
    intros Hx. assert (In j D) by (apply HD; exists x; auto). apply Min in H0. lia.
  - destruct Which as [Eq|Hin].
    + rewrite Eq. destruct HE as [HE|[x [Hx He]]]; [auto|]. right. exists x. split; [|exact He]. apply filter_In. cbn [fst].
      split; [apply in_or_app; auto|apply Nat.leb_refl].
    + right. apply HD in Hin. destruct Hin as [x [Hx He]]. exists x. split; [|exact He]. apply filter_In. cbn [fst].
      split; [exact Hx|apply Nat.leb_refl].
Qed.

(** ** From left to right: Packed-SS against the two-call Linear-SS *)

(* Tokens gained by verifying from c on in a window of n positions, when the draft is right where [right] says so. *)
Fixpoint gain (right : nat -> bool) (c n : nat) : nat :=
  match n with
  | 0 => 0
  | S n => if right (S c) then S (gain right (S c) n) else 1
  end.

Lemma gain_bound right n : forall c, gain right c n <= n.
Proof. induction n as [|n IH]; intros c; simpl; [lia|]. specialize (IH (S c)). destruct (right (S c)); lia. Qed.

Lemma gain_positive right c n : 1 <= n -> 1 <= gain right c n.
Proof. destruct n; simpl; [lia|]. destruct (right (S c)); lia. Qed.

Lemma gain_right right n : forall c k, c < k < c + gain right c n -> right k = true.
Proof.
  induction n as [|n IH]; simpl; intros c k H; [lia|]. destruct (right (S c)) eqn:R; [|lia].
  destruct (Nat.eq_dec k (S c)) as [->|N]; [exact R|]. apply (IH (S c)). lia.
Qed.

Lemma gain_reaches right n : forall c m, m <= n -> (forall k, c < k < c + m -> right k = true) -> m <= gain right c n.
Proof.
  induction n as [|n IH]; simpl; intros c m Hm H; [lia|]. destruct m as [|[|m]]; [lia|destruct (right (S c)); lia|].
  rewrite (H (S c)) by lia. apply le_n_S, IH; [lia|]. intros k Hk. apply H. lia.
Qed.

Lemma gain_ext f g n : forall c, (forall k, c < k <= c + n -> f k = g k) -> gain f c n = gain g c n.
Proof.
  induction n as [|n IH]; simpl; intros c H; [reflexivity|]. rewrite (H (S c)) by lia.
  destruct (g (S c)); [|reflexivity]. f_equal. apply IH. intros k Hk. apply H. lia.
Qed.

Lemma iter_succ {A} n (f : A -> A) a : Nat.iter (S n) f a = f (Nat.iter n f a).
Proof. reflexivity. Qed.

Section Thresholds.
Variables W L : nat.
Variable c_star : nat -> nat. (* ASM3.1 *)

(* Verified positions after one iteration of Linear-SS, after one call of Packed-SS with a draft from [before]. *)
Definition linear_step (c : nat) : nat := c + gain (fun k => c_star k <=? c) c (Nat.min W (L - c)).

Definition drafted_right (before : option nat) (k : nat) : bool :=
  match before with
  | None => false
  | Some b => (k <=? b + W) && (c_star k <=? b)
  end.

Definition packed_step (s : option nat * nat) : option nat * nat :=
  (Some (snd s), snd s + gain (drafted_right (fst s)) (snd s) (Nat.min W (L - snd s))).

Definition linear_position (t : nat) : nat := Nat.iter t linear_step 0.
Definition packed_position (n : nat) : nat := snd (Nat.iter n packed_step (None, 0)).

Lemma linear_step_monotone c d : c <= d -> linear_step c <= linear_step d.
Proof.
  intros H. unfold linear_step at 1. set (g := gain _ c _).
  assert (B : g <= Nat.min W (L - c)) by apply gain_bound.
  destruct (Nat.le_gt_cases (c + g) d) as [Le|Gt]; [unfold linear_step; lia|].
  enough (c + g - d <= gain (fun k => c_star k <=? d) d (Nat.min W (L - d))) by (unfold linear_step; lia).
  apply gain_reaches; [lia|]. intros k Hk. assert (R : (c_star k <=? c) = true).
  { apply (gain_right (fun k => c_star k <=? c) (Nat.min W (L - c)) c). fold g. lia. }
  apply Nat.leb_le in R. apply Nat.leb_le. lia.
Qed.

(* LEMB2 in a window of W positions that counts the verifier's own token *)
Lemma two_calls s : linear_step (snd s) <= snd (packed_step (packed_step s)).
Proof.
  destruct s as [before c]. unfold packed_step. cbn [fst snd]. set (c1 := c + gain (drafted_right before) c _).
  unfold linear_step. set (g := gain _ c _). assert (B : g <= Nat.min W (L - c)) by apply gain_bound.
  destruct (Nat.le_gt_cases (c + g) c1) as [Le|Gt]; [lia|].
  enough (c + g - c1 <= gain (drafted_right (Some c)) c1 (Nat.min W (L - c1))) by lia.
  apply gain_reaches; [unfold c1; lia|]. intros k Hk. unfold drafted_right.
  assert (R : (c_star k <=? c) = true).
  { apply (gain_right (fun k => c_star k <=? c) (Nat.min W (L - c)) c). fold g. lia. }
  rewrite R, andb_true_r. apply Nat.leb_le. lia.
Qed.

Lemma positions_dominate t : linear_position t <= packed_position (2 * t).
Proof.
  unfold linear_position, packed_position. induction t as [|t IH]; [simpl; lia|].
  replace (2 * S t) with (S (S (2 * t))) by lia. rewrite (iter_succ t), (iter_succ (S (2 * t))), (iter_succ (2 * t)).
  eapply Nat.le_trans; [apply linear_step_monotone, IH|apply two_calls].
Qed.

Lemma linear_step_grows c : 1 <= W -> Nat.min (S c) (Nat.max c L) <= linear_step c.
Proof.
  intros HW. unfold linear_step. destruct (Nat.le_gt_cases L c) as [Le|Gt]; [lia|].
  pose proof (gain_positive (fun k => c_star k <=? c) c (Nat.min W (L - c))). lia.
Qed.

Lemma linear_position_reaches t : 1 <= W -> Nat.min t L <= linear_position t.
Proof.
  intros HW. unfold linear_position. induction t as [|t IH]; [lia|]. rewrite iter_succ.
  pose proof (linear_step_grows (Nat.iter t linear_step 0) HW). lia.
Qed.

End Thresholds.

Lemma first_true (f : nat -> bool) n : f n = true -> exists m, m <= n /\ f m = true /\ forall i, i < m -> f i = false.
Proof.
  induction n as [n IH] using lt_wf_ind. intros H. destruct (existsb f (seq 0 n)) eqn:X.
  - apply existsb_exists in X. destruct X as [i [Hi Hf]]. apply in_seq in Hi. destruct (IH i ltac:(lia) Hf) as [m [A B]].
    exists m. split; [lia|exact B].
  - exists n. repeat split; [lia|exact H|]. intros i Hi. destruct (f i) eqn:F; [|reflexivity].
    assert (existsb f (seq 0 n) = true) by (apply existsb_exists; exists i; rewrite in_seq; split; [lia|exact F]). congruence.
Qed.

Section LeftToRight.
Variables W L : nat.
Hypothesis W_positive : 1 <= W.
Variables v z : pairs -> nat -> nat.
Variable eos : nat -> bool.
Variable x : nat -> nat. (* the greedy continuation from left to right *)
Variable c_star : nat -> nat.
Variable e : nat. (* where it ends: at its first EOS or at L *)

Definition segment (c n : nat) : pairs := map (fun k => (k, x k)) (seq (S c) n).
Definition prefix (c : nat) : pairs := segment 0 c.

Hypothesis greedy : forall c, c < L -> v (prefix c) (S c) = x (S c).
(* ASM3.1, where one of the two schedules drafts *)
Hypothesis thresholds : forall c k, (exists n, c = packed_position W L c_star n \/ c = linear_position W L c_star n) ->
  c < e -> c < k <= L -> k <= c + W -> (z (prefix c) k =? x k) = (c_star k <=? c).
Hypothesis e_limit : e <= L.
Hypothesis e_first : forall k, 1 <= k < e -> eos (x k) = false.
Hypothesis e_ends : e = L \/ 1 <= e /\ eos (x e) = true.

Definition ltr (t : past) (U : list nat) : list nat := U.
Let the_ends := eos_positions eos.
Let packed_ltr := packed W L z the_ends ltr.
Let linear_ltr := linear W L z the_ends ltr.
Let state := state L the_ends.

(* What the state is when c positions are verified *)
Definition at_position (c : nat) : pairs * nat := if c <? e then (prefix c, L) else (prefix e, e).

Lemma segment_app c n m : segment c n ++ segment (c + n) m = segment c (n + m).
Proof. unfold segment. rewrite <- map_app, <- Nat.add_succ_l, <- seq_app. reflexivity. Qed.

Lemma prefix_app c n : prefix c ++ segment c n = prefix (c + n).
Proof. apply (segment_app 0). Qed.

Lemma find_segment c n j : find (segment c n) j = if (c <? j) && (j <=? c + n) then Some (x j) else None.
Proof.
  revert c. unfold segment. induction n as [|n IH]; intros c.
  - simpl. replace ((c <? j) && (j <=? c + 0)) with false; [reflexivity|].
    symmetry. apply andb_false_iff. rewrite Nat.ltb_ge, Nat.leb_gt. lia.
  - cbn [seq map find]. destruct (S c =? j) eqn:H.
    + apply Nat.eqb_eq in H. subst j. replace ((c <? S c) && (S c <=? c + S n)) with true; [reflexivity|].
      symmetry. apply andb_true_iff. rewrite Nat.ltb_lt, Nat.leb_le. lia.
    + apply Nat.eqb_neq in H. rewrite IH.
      replace ((S c <? j) && (j <=? S c + n)) with ((c <? j) && (j <=? c + S n)); [reflexivity|].
      apply eq_true_iff_eq. rewrite !andb_true_iff, !Nat.ltb_lt, !Nat.leb_le. lia.
Qed.

Lemma resolved_prefix c j : 1 <= j -> resolved (prefix c) j = (j <=? c).
Proof.
  intros H. unfold resolved, prefix. rewrite find_segment. assert (A : 0 <? j = true) by (apply Nat.ltb_lt; lia).
  rewrite A. cbn [andb Nat.add]. destruct (j <=? c); reflexivity.
Qed.

Lemma filter_interval f a b n : (forall j, a <= j < a + n -> f j = (b <=? j)) -> a <= b ->
  filter f (seq a n) = seq b (a + n - b).
Proof.
  revert a. induction n as [|n IH]; intros a H Hab; simpl.
  - replace (a + 0 - b) with 0 by lia. reflexivity.
  - rewrite (H a) by lia. destruct (b <=? a) eqn:Hb.
    + apply Nat.leb_le in Hb. assert (b = a) by lia. subst b. replace (a + S n - a) with (S n) by lia. simpl. f_equal.
      assert (T : forall l, (forall j, In j l -> f j = true) -> filter f l = l).
      { induction l as [|i l I]; simpl; intros T; [reflexivity|]. rewrite T by auto. f_equal. apply I. auto. }
      apply T. intros j Hj. apply in_seq in Hj. rewrite (H j) by lia. apply Nat.leb_le. lia.
    + apply Nat.leb_gt in Hb. rewrite (IH (S a)) by (lia || (intros j Hj; apply H; lia)). f_equal. lia.
Qed.

Lemma filter_below f a b n : (forall j, a <= j < a + n -> f j = (j <? b)) -> filter f (seq a n) = seq a (Nat.min n (b - a)).
Proof.
  revert a. induction n as [|n IH]; intros a H; simpl; [reflexivity|]. rewrite (H a) by lia. destruct (a <? b) eqn:Hb.
  - apply Nat.ltb_lt in Hb. rewrite (IH (S a)) by (intros j Hj; apply H; lia). replace (b - a) with (S (b - S a)) by lia.
  reflexivity.
  - apply Nat.ltb_ge in Hb. rewrite (IH (S a)) by (intros j Hj; apply H; lia). replace (b - a) with 0 by lia.
    replace (b - S a) with 0 by lia. rewrite Nat.min_0_r. reflexivity.
Qed.

Lemma unresolved_prefix c : c <= L -> unresolved (prefix c) L = seq (S c) (L - c).
Proof.
  intros H. unfold unresolved. rewrite (filter_interval _ 1 (S c) L); [f_equal; lia| |lia].
  intros j Hj. rewrite resolved_prefix by lia. apply eq_true_iff_eq. rewrite negb_true_iff, Nat.leb_gt, Nat.leb_le. lia.
Qed.

Lemma active_prefix c : c <= L -> active W (prefix c) L = seq (S c) (Nat.min W (L - c)).
Proof.
  intros H. unfold active. rewrite (unresolved_prefix c H). destruct (L - c) as [|n] eqn:Hn; [rewrite Nat.min_0_r;
    reflexivity|].
  cbn [seq]. change (S c :: seq (S (S c)) n) with (seq (S c) (S n)). rewrite (filter_below _ (S c) (S c + W)) by reflexivity.
  f_equal. lia.
Qed.

(* The position after verifying: the tokens are those of x, whatever the draft. *)
Lemma verify_ltr D n : forall c, c + n <= L ->
  snd (verify v (prefix c) D (seq (S c) n)) =
  segment c (gain (fun k => match find D k with Some d => d =? x k | None => false end) c n).
Proof.
  induction n as [|n IH]; intros c H; [reflexivity|]. cbn [seq]. rewrite verify_cons. cbn [gain]. rewrite greedy by lia.
  destruct (find D (S c)) as [d|]; [|reflexivity]. destruct (d =? x (S c)) eqn:Hd; [|reflexivity].
  apply Nat.eqb_eq in Hd. subst d. cbn [snd].
  change (prefix c ++ [(S c, x (S c))]) with (prefix c ++ segment c 1). rewrite prefix_app, Nat.add_1_r, IH by lia. reflexivity.
Qed.

Lemma append_ltr c n : c < e -> c + n <= L -> append the_ends (prefix c, L) (segment c n) = at_position (c + n).
Proof.
  intros Hc Hn. unfold append. cbn [fst snd]. rewrite prefix_app. set (m := c + n) in *.
  assert (P : forall j, In j (the_ends (prefix m)) <-> 1 <= j <= m /\ eos (x j) = true).
  { intros j. unfold the_ends, eos_positions. rewrite in_map_iff. split.
    - intros [[i y] [<- H]]. apply filter_In in H. destruct H as [H Hy]. apply in_map_iff in H. destruct H as [k [Hk Hin]].
      injection Hk as <- <-. apply in_seq in Hin. simpl in *. split; [lia|exact Hy].
    - intros [H Hj]. exists (j, x j). split; [reflexivity|]. apply filter_In. split; [|exact Hj].
      apply in_map_iff. exists j. split; [reflexivity|]. apply in_seq. lia. }
  assert (Least : forall D d, d <= L -> (forall j, In j D -> d <= j) -> (d = L \/ In d D) -> fold_right Nat.min L D = d).
  { clear. induction D as [|i D I]; simpl; intros d Hd H Hin; [intuition lia|]. assert (d <= i) by (apply H; auto).
    destruct Hin as [->|[->|Hin]].
    - rewrite (I L) by auto. lia.
    - pose proof (E_falls L D). assert (Lo : d <= fold_right Nat.min L D).
      { clear I. induction D as [|k D J]; simpl in *; [exact Hd|]. assert (d <= k) by (apply H; auto).
        assert (d <= fold_right Nat.min L D) by (apply J; [|apply E_falls]; intros j [Hj|Hj]; apply H; auto). lia. }
      lia.
    - rewrite (I d) by auto. lia. }
  assert (Cut : forall E k, k <= E -> filter (fun jx => fst jx <=? E) (prefix k) = prefix k).
  { intros E k Hk. assert (T : forall l : pairs, (forall j, In j l -> fst j <=? E = true) ->
    filter (fun jx => fst jx <=? E) l = l).
    { induction l as [|i l I]; simpl; intros T; [reflexivity|]. rewrite T by auto. f_equal. apply I. auto. }
    apply T. intros j Hj. apply in_map_iff in Hj. destruct Hj as [i [<- Hi]]. apply in_seq in Hi. apply Nat.leb_le. simpl.
    lia. }
  unfold at_position. destruct (m <? e) eqn:Hm.
  - apply Nat.ltb_lt in Hm. rewrite (Least _ L); [rewrite Cut by lia; reflexivity|lia| |auto].
    intros j Hj. apply P in Hj. destruct Hj as [Hj Ej]. rewrite (e_first j) in Ej by lia. discriminate Ej.
  - apply Nat.ltb_ge in Hm. rewrite (Least _ e); [|exact e_limit| |].
    + f_equal. replace m with (e + (m - e)) by lia. rewrite <- prefix_app, filter_app, Cut by lia.
      assert (T : forall l : pairs, (forall j, In j l -> fst j <=? e = false) -> filter (fun jx => fst jx <=? e) l = []).
      { induction l as [|i l I]; simpl; intros T; [reflexivity|]. rewrite T by auto. apply I. auto. }
      rewrite T; [apply app_nil_r|]. intros j Hj. apply in_map_iff in Hj. destruct Hj as [i [<- Hi]].
      apply in_seq in Hi. apply Nat.leb_gt. simpl. lia.
    + intros j Hj. apply P in Hj. destruct Hj as [Hj Ej]. destruct (Nat.le_gt_cases e j); [assumption|].
      rewrite (e_first j) in Ej by lia. discriminate Ej.
    + destruct e_ends as [->|[H1 H2]]; [auto|]. right. apply P. split; [lia|exact H2].
Qed.

Lemma find_propose P js k : find (propose z P js) k = if existsb (Nat.eqb k) js then Some (z P k) else None.
Proof.
  induction js as [|j js IH]; simpl; [reflexivity|]. rewrite (Nat.eqb_sym k j). destruct (j =? k) eqn:H; [|exact IH].
  apply Nat.eqb_eq in H. subst j. reflexivity.
Qed.

Lemma finished_at c : c <= L -> forall t, state t = at_position c -> finished L the_ends t = (e <=? c).
Proof.
  intros Hc t Ht. unfold finished. fold state. rewrite Ht. unfold at_position. destruct (c <? e) eqn:H; cbn [fst snd].
  - apply Nat.ltb_lt in H. rewrite unresolved_prefix by lia. assert (N : e <=? c = false) by (apply Nat.leb_gt; lia).
    rewrite N. destruct (L - c) eqn:Z; [lia|reflexivity].
  - apply Nat.ltb_ge in H. assert (Y : e <=? c = true) by (apply Nat.leb_le; lia). rewrite Y.
    destruct (unresolved (prefix e) e) as [|j js] eqn:U; [reflexivity|]. exfalso.
    assert (I : In j (unresolved (prefix e) e)) by (rewrite U; left; reflexivity).
    apply unresolved_in in I. destruct I as [I J]. rewrite resolved_prefix in J by lia. apply Nat.leb_gt in J. lia.
Qed.

Definition calls (s : schedule) (n : nat) : past := Nat.iter n (fun t => make_call W L v the_ends s t :: t) [].

Lemma run_calls s m : finished L the_ends (calls s m) = true -> (forall i, i < m -> finished L the_ends (calls s i) = false) ->
  forall n k, k <= m <= k + n -> run W L v the_ends s n (calls s k) = calls s m.
Proof.
  intros Hm Hi. induction n as [|n IH]; intros k Hk; simpl.
  - replace k with m by lia. rewrite Hm. reflexivity.
  - destruct (Nat.eq_dec k m) as [->|N]; [rewrite Hm; reflexivity|]. rewrite Hi by lia.
    apply (IH (S k)). lia.
Qed.

Lemma gain_in_window right c : c <= L -> c + gain right c (Nat.min W (L - c)) <= L.
Proof. intros H. pose proof (gain_bound right (Nat.min W (L - c)) c). lia. Qed.

Lemma packed_refines n :
  (forall i, i < n -> packed_position W L c_star i < e) ->
  let (before, c) := Nat.iter n (packed_step W L c_star) (None, 0) in
  c <= L /\ state (calls packed_ltr n) = at_position c /\
  (c < e -> forall k, c < k <= L ->
    match find (packed_drafts W L z the_ends (calls packed_ltr n)) k with Some d => d =? x k | None => false end
    = drafted_right W c_star before k).
Proof.
  induction n as [|n IH]; intros H.
  - cbn [Nat.iter]. split; [lia|]. split; [|reflexivity]. unfold at_position. destruct (0 <? e) eqn:He; [reflexivity|].
    apply Nat.ltb_ge in He. assert (e = 0) by lia. unfold state, calls. simpl. destruct e_ends as [->|]; [|lia].
    replace L with 0 by lia. reflexivity.
  - pose proof (H n ltac:(lia)) as Hn. unfold packed_position in Hn.
    rewrite iter_succ. specialize (IH ltac:(intros i Hi; apply H; lia)).
    assert (Met : exists m, snd (Nat.iter n (packed_step W L c_star) (None, 0)) = packed_position W L c_star m
      \/ snd (Nat.iter n (packed_step W L c_star) (None, 0)) = linear_position W L c_star m) by (exists n; left; reflexivity).
    destruct (Nat.iter n (packed_step W L c_star) (None, 0)) as [before c]. cbn [snd] in Hn, Met.
    destruct IH as [Hc [Hs Hd]]. specialize (Hd Hn). unfold packed_step. cbn [fst snd].
    assert (At : at_position c = (prefix c, L)) by (unfold at_position; apply Nat.ltb_lt in Hn; rewrite Hn; reflexivity).
    set (t := calls packed_ltr n) in *. set (g := gain (drafted_right W c_star before) c (Nat.min W (L - c))).
    assert (Hg : c + g <= L) by (apply gain_in_window; exact Hc).
    assert (Made : exists h', make_call W L v the_ends packed_ltr t = Call true (seq (S c) (Nat.min W (L - c))) h' (segment c
      g)).
    { unfold make_call. fold state. rewrite Hs, At. unfold packed_ltr, packed. cbn [order verifies drafts].
      unfold always, ltr. rewrite active_prefix by exact Hc. rewrite verify_ltr by lia. eexists. do 2 f_equal. unfold g.
      apply gain_ext. intros k Hk. apply Hd. lia. }
    destruct Made as [h' Made].
    assert (S1 : state (calls packed_ltr (S n)) = at_position (c + g)).
    { unfold calls. rewrite iter_succ. fold (calls packed_ltr n). fold t. rewrite Made. unfold state.
    cbn [AnyOrder.state verified C].
      fold state. rewrite Hs, At. apply append_ltr; [exact Hn|exact Hg]. }
    split; [exact Hg|]. split; [exact S1|]. intros Hge k Hk.
    assert (Dr : packed_drafts W L z the_ends (calls packed_ltr (S n)) =
                 propose z (prefix c) (filter (fun j => negb (resolved (prefix (c + g)) j) && (j <=? L)) (seq (S c) (Nat.min W
                   (L - c))))).
    { unfold calls in S1 |- *. rewrite iter_succ in S1 |- *. fold (calls packed_ltr n) in S1 |- *. fold t in S1 |- *.
      unfold packed_drafts, still_open. fold state. rewrite S1, Hs, At. cbn [fst snd]. unfold at_position.
      apply Nat.ltb_lt in Hge. rewrite Hge. rewrite active_prefix by exact Hc. reflexivity. }
    rewrite Dr, find_propose. unfold drafted_right.
    assert (Ex : existsb (Nat.eqb k) (filter (fun j => negb (resolved (prefix (c + g)) j) && (j <=? L)) (seq (S c) (Nat.min W
      (L - c))))
                 = (k <=? c + W)).
    { apply eq_true_iff_eq. rewrite existsb_exists, Nat.leb_le. split.
      - intros [j [Hj Hkj]]. apply Nat.eqb_eq in Hkj. subst j. apply filter_In in Hj. destruct Hj as [Hj _].
      apply in_seq in Hj. lia.
      - intros Hw. exists k. split; [|apply Nat.eqb_refl]. apply filter_In. rewrite in_seq. split; [lia|].
        rewrite resolved_prefix by lia. apply andb_true_iff. rewrite negb_true_iff, Nat.leb_gt, Nat.leb_le. lia. }
    rewrite Ex. destruct (k <=? c + W) eqn:Hw; [|reflexivity]. apply Nat.leb_le in Hw. cbn [andb]. apply thresholds;
      (exact Met || lia).
Qed.

Lemma drafting_keeps s t : verifies s t = false -> state (make_call W L v the_ends s t :: t) = state t.
Proof. intros H. unfold make_call. rewrite H. destruct (AnyOrder.state _ _ _). reflexivity. Qed.

Lemma linear_refines t :
  (forall i, i < t -> linear_position W L c_star i < e) ->
  let c := linear_position W L c_star t in
  c <= L /\ state (calls linear_ltr (2 * t)) = at_position c /\ linear_verifies (calls linear_ltr (2 * t)) = false /\
  (c < e -> state (calls linear_ltr (S (2 * t))) = at_position c).
Proof.
  induction t as [|t IH]; intros H; cbv zeta.
  - change (linear_position W L c_star 0) with 0. change (2 * 0) with 0. change (calls linear_ltr 0) with (@nil call).
    assert (Z : state [] = at_position 0).
    { unfold at_position. destruct (0 <? e) eqn:He; [reflexivity|]. apply Nat.ltb_ge in He. assert (e = 0) by lia.
      unfold state. simpl. destruct e_ends as [->|]; [|lia]. replace L with 0 by lia. reflexivity. }
    split; [lia|]. split; [exact Z|]. split; [reflexivity|]. intros He.
    change (calls linear_ltr 1) with [make_call W L v the_ends linear_ltr []].
    rewrite drafting_keeps by reflexivity. exact Z.
  - pose proof (H t ltac:(lia)) as Ht. specialize (IH ltac:(intros i Hi; apply H; lia)). cbv zeta in IH.
    unfold linear_position. rewrite iter_succ. fold (linear_position W L c_star t).
    set (c := linear_position W L c_star t) in *. destruct IH as [Hc [Hs [Hv Hs1]]]. specialize (Hs1 Ht).
    assert (At : at_position c = (prefix c, L)) by (unfold at_position; apply Nat.ltb_lt in Ht; rewrite Ht; reflexivity).
    replace (2 * S t) with (S (S (2 * t))) by lia. set (n := 2 * t) in *.
    assert (D : calls linear_ltr (S n) = Call false (seq (S c) (Nat.min W (L - c))) 0 [] :: calls linear_ltr n).
    { unfold calls. rewrite iter_succ. fold (calls linear_ltr n). f_equal.
      unfold make_call. fold state. rewrite Hs, At. change (verifies linear_ltr) with linear_verifies.
      change (order linear_ltr) with (linear_order ltr). rewrite Hv, active_prefix by exact Hc. f_equal.
      unfold linear_order, ltr.
      destruct (calls linear_ltr n) as [|k r]; [reflexivity|]. simpl in Hv.
      destruct (verified k); [reflexivity|discriminate Hv]. }
    set (g := gain (fun k => c_star k <=? c) c (Nat.min W (L - c))).
    assert (Hg : c + g <= L) by (apply gain_in_window; exact Hc).
    assert (M : exists h', calls linear_ltr (S (S n)) = Call true (seq (S c) (Nat.min W (L - c))) h' (segment c g) :: calls
      linear_ltr (S n)).
    { eexists. unfold calls at 1. rewrite iter_succ. fold (calls linear_ltr (S n)). f_equal.
      unfold make_call. fold state. rewrite Hs1, At, D. change (verifies linear_ltr) with linear_verifies.
      change (order linear_ltr) with (linear_order ltr). change (drafts linear_ltr) with (linear_drafts W L z the_ends).
      unfold linear_order, linear_drafts. cbn [linear_verifies verified negb pi].
      rewrite verify_ltr by lia. do 2 f_equal.
      apply gain_ext. intros k Hk. fold state. rewrite Hs, At. cbn [fst snd]. rewrite active_prefix, find_propose by exact Hc.
      assert (Ex : existsb (Nat.eqb k) (seq (S c) (Nat.min W (L - c))) = true).
      { apply existsb_exists. exists k. split; [apply in_seq; lia|apply Nat.eqb_refl]. }
      rewrite Ex. apply thresholds; ((exists t; right; reflexivity) || lia). }
    destruct M as [h' M].
    assert (S2 : state (calls linear_ltr (S (S n))) = at_position (c + g)).
    { rewrite M. unfold state. cbn [AnyOrder.state verified C]. fold state. rewrite Hs1, At. apply append_ltr;
      [exact Ht|exact Hg]. }
    split; [exact Hg|]. split; [exact S2|]. split; [rewrite M; reflexivity|]. intros _.
    transitivity (state (calls linear_ltr (S (S n)))); [|exact S2]. apply drafting_keeps. rewrite M. reflexivity.
Qed.

(* claim: DOM-ANYORDER *)
(** Appendix C from left to right: under ASM3.1, for every W, limit and EOS, Algorithm 3 makes no more calls than the
    two-call Linear-SS, and both end with the greedy continuation up to its end e. *)
Theorem ltr_dominance :
  length (run W L v the_ends packed_ltr L []) <= length (run W L v the_ends linear_ltr (L * 2) []) /\
  state (run W L v the_ends packed_ltr L []) = (prefix e, e) /\
  state (run W L v the_ends linear_ltr (L * 2) []) = (prefix e, e).
Proof.
  assert (Len : forall s n, length (calls s n) = n) by (induction n; simpl; congruence).
  assert (Ends : forall c, e <= c -> at_position c = (prefix e, e)).
  { intros c Hc. unfold at_position. apply Nat.ltb_ge in Hc. rewrite Hc. reflexivity. }
  destruct (first_true (fun t => e <=? linear_position W L c_star t) e) as [t [Ht [Hl Hi]]].
  { apply Nat.leb_le. pose proof (linear_position_reaches W L c_star e W_positive). lia. }
  destruct (first_true (fun n => e <=? packed_position W L c_star n) (2 * t)) as [n [Hn [Hp Hj]]].
  { apply Nat.leb_le. apply Nat.leb_le in Hl. pose proof (positions_dominate W L c_star t). lia. }
  assert (Li : forall i, i < t -> linear_position W L c_star i < e) by (intros i Hit; apply Nat.leb_gt, Hi, Hit).
  assert (Pi : forall i, i < n -> packed_position W L c_star i < e) by (intros i Hin; apply Nat.leb_gt, Hj, Hin).
  assert (PS : forall m, (forall i, i < m -> packed_position W L c_star i < e) ->
    packed_position W L c_star m <= L /\ state (calls packed_ltr m) = at_position (packed_position W L c_star m)).
  { intros m Hm. pose proof (packed_refines m Hm) as R. unfold packed_position in *.
    destruct (Nat.iter m (packed_step W L c_star) (None, 0)) as [b c]. split; apply R. }
  assert (Le : n <= L).
  { destruct (Nat.le_gt_cases n L) as [A|A]; [exact A|]. exfalso. pose proof (Pi L ltac:(lia)).
    assert (G : forall m, Nat.min m L <= packed_position W L c_star m).
    { unfold packed_position. induction m as [|m IHm]; [lia|]. rewrite iter_succ.
      destruct (Nat.iter m (packed_step W L c_star) (None, 0)) as [b c]. unfold packed_step. cbn [fst snd] in *.
      destruct (Nat.le_gt_cases L c); [lia|].
      pose proof (gain_positive (drafted_right W c_star b) c (Nat.min W (L - c))). lia. }
    pose proof (G L). lia. }
  assert (RP : run W L v the_ends packed_ltr L [] = calls packed_ltr n).
  { apply (run_calls packed_ltr n) with (k := 0); [| |lia].
    - destruct (PS n Pi) as [A B]. rewrite (finished_at _ A _ B). exact Hp.
    - intros i Hin. destruct (PS i ltac:(intros j Hji; apply Pi; lia)) as [A B]. rewrite (finished_at _ A _ B). apply Hj, Hin. }
  assert (RL : run W L v the_ends linear_ltr (L * 2) [] = calls linear_ltr (2 * t)).
  { apply (run_calls linear_ltr (2 * t)) with (k := 0); [| |lia].
    - destruct (linear_refines t Li) as [A [B _]]. rewrite (finished_at _ A _ B). exact Hl.
    - intros i Hit. destruct (Nat.Even_or_Odd i) as [[j ->]|[j ->]].
      + destruct (linear_refines j ltac:(intros k Hk; apply Li; lia)) as [A [B _]]. rewrite (finished_at _ A _ B). apply Hi.
      lia.
      + destruct (linear_refines j ltac:(intros k Hk; apply Li; lia)) as [A [_ [_ B]]]. specialize (B (Li j ltac:(lia))).
        rewrite Nat.add_1_r. rewrite (finished_at _ A _ B). apply Hi. lia. }
  rewrite RP, RL, !Len. split; [exact Hn|]. apply Nat.leb_le in Hl, Hp. split.
  - destruct (PS n Pi) as [_ B]. rewrite B. apply Ends, Hp.
  - destruct (linear_refines t Li) as [_ [B _]]. rewrite B. apply Ends, Hl.
Qed.

End LeftToRight.

(** ** Wrong on purpose *)

(* Every rank is predicted from the accepted pairs alone, not from the draft pairs of earlier ranks. *)
Definition blind_verify (v : pairs -> nat -> nat) (P D : pairs) (o : list nat) : nat * pairs :=
  let vs := map (v P) o in
  let h := agree (map snd (available D o)) vs in
  (h, firstn (Nat.min (S h) (length o)) (combine o vs)).

(* refuted: PROPC1 *)
(** Not the serial reference: a call that verifies without EQ8's context ([verify] in its place is [verify_serial]). *)
Theorem blind_is_wrong : ~ forall v P D o,
  snd (blind_verify v P D o) = serial_block v P (firstn (length (snd (blind_verify v P D o))) o).
Proof. intros H. specialize (H (fun P _ => length P) [] [(1, 0); (2, 0)] [1; 2]). discriminate H. Qed.

(* refuted: PROPC1 *)
(** Not the text of another order: the output depends on the order policy, so "equal to left-to-right greedy decoding" would
    be too strong. *)
Theorem orders_differ : ~ forall W L v z ends (policy : past -> list nat ->
  list nat), (forall t U, Permutation (policy t U) U) ->
  output (state L ends (run W L v ends (packed W L z ends policy) L [])) =
  output (state L ends (run W L v ends (packed W L z ends ltr) L [])).
Proof.
  intros H. specialize (H 2 2 (fun P _ => length P) (fun P _ => 0) (fun _ => []) (fun _ U => rev U)
                          (fun _ U => Permutation_sym (Permutation_rev U))).
  discriminate H.
Qed.

(* refuted: PROGRESS *)
(** Not enough: one call less than L. *)
Theorem fewer_calls_are_wrong : ~ forall W L v z ends (policy : past -> list nat -> list nat), 1 <= W ->
  (forall t U, Permutation (policy t U) U) -> length (run W L v ends (packed W L z ends policy) L []) <= L - 1.
Proof.
  intros H. specialize (H 1 1 (fun _ _ => 0) (fun _ _ => 0) (fun _ => []) ltr (le_n 1) (fun _ U => Permutation_refl U)).
  vm_compute in H. lia.
Qed.

(* refuted: DOM-ANYORDER *)
(** Not one call less than Linear-SS: with every draft right and W = L = 2 both make 2 calls. *)
Theorem strict_dominance_is_wrong : ~ forall W L v z eos x c_star e, 1 <= W ->
  (forall c, c < L -> v (prefix x c) (S c) = x (S c)) ->
  (forall c k, c < k <= L -> k <= c + W -> (z (prefix x c) k =? x k) = (c_star k <=? c)) ->
  e <= L -> (forall k, 1 <= k < e -> eos (x k) = false) -> (e = L \/ 1 <= e /\ eos (x e) = true) ->
  length (run W L v (eos_positions eos) (packed W L z (eos_positions eos) ltr) L []) <
  length (run W L v (eos_positions eos) (linear W L z (eos_positions eos) ltr) (L * 2) []).
Proof.
  intros H. specialize (H 2 2 (fun _ _ => 0) (fun _ _ => 0) (fun _ => false) (fun _ => 0) (fun _ => 0) 2 ltac:(lia)
    ltac:(reflexivity) ltac:(reflexivity) ltac:(lia) ltac:(reflexivity) ltac:(auto)).
  vm_compute in H. lia.
Qed.

Print Assumptions PROPC1.
Print Assumptions any_order_terminates.
Print Assumptions finished_output.
Print Assumptions algorithm3_terminates.
Print Assumptions linear_terminates.
Print Assumptions eos_stops.
Print Assumptions positions_dominate.
Print Assumptions ltr_dominance.
Print Assumptions blind_is_wrong.
Print Assumptions orders_differ.
Print Assumptions fewer_calls_are_wrong.
Print Assumptions strict_dominance_is_wrong.
