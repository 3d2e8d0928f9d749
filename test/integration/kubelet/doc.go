// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubelet tests what kubecri does at a kubelet with the kubelet's own device manager, in
// the test's process: no cluster, no root.
package kubelet
