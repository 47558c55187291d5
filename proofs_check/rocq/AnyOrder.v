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
      to EOS is said where it is used. *)

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

Section AnyOrder.
Variables (W L : nat).
Variable v : pairs -> nat -> nat. (* the verifier's argmax at a position, after these pairs *)
Variable z : pairs -> nat -> nat. (* the drafter's *)
Variable ends : pairs -> list nat. (* the positions at which an output with these pairs may end *)

Definition unresolved (P : pairs) (E : nat) : list nat := filter (fun j => negb (resolved P j)) (seq 1 E).

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
  intros HW [_ Hp] Hg. induction n as [|n IH]; intros t HI Hn Hi; simpl; destruct (finished t) eqn:Hf; try (split; [exact Hf|lia]).
  - unfold finished in Hf. destruct (unresolved _ _); [discriminate Hf|]. simpl in Hn. lia.
  - assert (G : finished (run s n (make_call s t :: t)) = true
                /\ length (run s n (make_call s t :: t)) <= n + length (make_call s t :: t)); [|simpl in G; split; [tauto|lia]].
    assert (U : unresolved (fst (state t)) (snd (state t)) <> []) by (unfold finished in Hf; destruct (unresolved _ _); congruence).
    apply IH.
    + apply Hp, HI.
    + cbn [state idle]. destruct (Hp t HI) as [_ Pm].
      unfold make_call in *. destruct (state t) as [P E] eqn:Hs. cbn [fst snd] in *. destruct (verifies s t) eqn:Hv; cbn [C verified] in *.
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
  intros HW Hp Hg. destruct (run_finishes s I g HW Hp Hg (L * S g) []) as [A B]; simpl; [apply Hp| |lia|simpl in B; split; [exact A|lia]].
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
  destruct T as [A B]; [split; [exact I|intros t _; split; [exact I|apply Hp]]|intros t Ht; discriminate Ht|]. split; [exact A|]. split; [exact B|apply finished_output, A].
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
    + unfold make_call. destruct (state t) as [P E] eqn:Hs. simpl verifies. destruct (linear_verifies t) eqn:Hv; [discriminate|].
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
  { unfold E'. clearbody D. clear. induction D as [|e D I]; simpl; [contradiction|]. intros j [<-|Hj]; [lia|]. specialize (I j Hj). lia. }
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
