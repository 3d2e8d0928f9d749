// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package whatif answers questions about placement: why a pod waits, where pods would go now or
// after a change of the cluster, and which smallest change would make a pod fit.
//
// # A second scheduler, on a copy
//
// An answer is useful only if the scheduler then does the same. So an Engine has a framework for
// each profile of the scheduler, with the same plugins (this project's and upstream's) and the same
// configuration. A question runs the scheduling cycle of that framework (PreFilter, Filter,
// PreScore, Score, and the choice of devices) on a copy of the state:
//
//   - Nodes, inventories and reservations come from package nodestate: see [nodestate.Copy]. They
//     are immutable, so the copy is one of pointers.
//   - Pods come from the informers. Pods with a reservation count as bound.
//   - Each question makes its own snapshot for the framework. It does not read the scheduler's
//     snapshot, which changes in the meantime.
//
// A change (a pod less, a node more, a device less) changes the copy. A trial with ended pods works
// as in preemption: on a clone of the cycle's state and a copy of the NodeInfo.
//
// # Isolation from scheduling
//
// A question writes nothing that a scheduling cycle reads. The plugin keeps no verdicts for it,
// charges nothing to the budget that all cycles share, wakes no pod and writes no event (see
// [frameworkplugin.WhatIf]). The engine does not call upstream's Reserve, Permit, PreBind, Bind and
// PostFilter. It calls device plugins with pods and nodes, as a cycle does, but reports no node to
// them. Results that depend only on the question come from the caches that cycles use, and stay
// there.
//
// One goroutine answers one question at a time. It rests after each millisecond of work: a hundred
// times as long while the scheduler schedules pods, and as long as it has worked otherwise. So
// questions take at most a hundredth of one core, or half of it. A question ends when its time or
// its steps are used up.
//
// # Limitations
//
// An answer does not predict preemption: a pod that has to preempt others waits. It does not know
// pods without devices whose binding is under way, volumes that other pods are about to use,
// extenders (HTTP callbacks of a scheduler's configuration), or changes that admission plugins make
// to a pod. On more than 100 nodes, upstream scores only some of the fitting nodes, and an answer
// does not know which. The engine rejects questions about pods of a pod group. The smallest number
// of pods to end is for one node at a time, and assumes that a pod which fits also fits when one
// more pod ends.
package whatif
