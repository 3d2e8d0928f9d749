// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostile makes pods that cost the scheduler as much as they can, and measures what they
// cost.
//
// A [Shape] describes a pod by a few numbers: how many containers of which kind it has, and what
// each requests in which form. [Climb] grows, shrinks and mutates shapes toward the highest cost,
// in an order that depends on a seed alone. A [Bench] is the scheduler's plugin in upstream's
// framework, on nodes of one [Machine]; it measures the parts of a scheduling cycle one by one, in
// CPU time of the process. Each measurement has a scheduler of its own, so that no cache helps.
package hostile
