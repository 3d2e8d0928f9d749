// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package whatif answers questions about placement: why a pod waits, where pods would go now or
// after a change of the cluster, and which is the smallest change by which a pod would fit.
//
// # A second scheduler, on a copy
//
// An answer is worth something only if the scheduler then does the same. So an Engine has a
// framework for each profile of the scheduler, with the same plugins, ours and upstream's, and the
// same configuration; and a question runs the scheduling cycle of that framework (PreFilter,
// Filter, PreScore, Score, and the choice of devices) on a copy of the state:
//
//   - Nodes, inventories and reservations are those of package nodestate, copied: see
//     [nodestate.Copy]. All that is copied is immutable, so that is a copy of pointers.
//   - Pods are those of the informers. Pods with a reservation count as bound.
//   - The snapshot of the framework is made of these, for each question anew. The scheduler's own
//     is not read: it changes while a question is answered.
//
// A change (a pod less, a node more, a device less) is a change of the copy. A trial of pods that
// end is what preemption simulates: a clone of the cycle's state, a copy of the NodeInfo.
//
// # What a question cannot do
//
// It writes nothing that a scheduling cycle reads. Our plugin keeps no verdicts for it, charges
// nothing to the budget that all cycles share, wakes no pod and writes no event (see
// [frameworkplugin.Aside]); upstream's Reserve, Permit, PreBind, Bind and PostFilter are not
// called. Plugins for devices are asked about pods and nodes, as in a cycle; no node is reported to
// them. Answers that depend on nothing but the question are found in the caches that cycles use,
// and are left there.
//
// One question is answered at a time, by one goroutine, which rests after each millisecond of work:
// a hundred times as long while the scheduler schedules pods, and as long as it has worked while
// there are none. So questions take a hundredth of one core at most, or half of it. A question ends
// when its time or its steps are over.
//
// # What an answer does not know
//
// Whom the scheduler would preempt: a pod that has to preempt others is one that waits. Pods
// without devices that are being bound at this moment; volumes that other pods are about to use;
// extenders (HTTP callbacks of a scheduler's configuration); what admission plugins would add to a
// pod; and, on more than 100 nodes, which of the nodes that fit upstream scores (it looks at a part
// of them). Pods of a pod group are not answered for. The smallest number of pods to end is for one
// node at a time, and supposes that a pod which fits also fits when one more pod ends.
package whatif
