// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package frameworkplugin

import (
	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/cache"
)

// mistakenPods is how many pods are remembered for which the event was written.
const mistakenPods = 1 << 12

// reported has the text of the event that was written last, or what it depends on, by the pod's
// UID.
type reported = cache.Cache[apitypes.UID, string]

func newReported() *reported { return cache.New[apitypes.UID, string](mistakenPods) }
