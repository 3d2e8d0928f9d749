// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"k8s.io/apimachinery/pkg/runtime"
	configv1 "k8s.io/kube-scheduler/config/v1"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
)

// Kind is the kind of the arguments.
const Kind = "KubeDeviceArgs"

// AddToScheme makes a scheme of upstream's scheduler configuration know the arguments.
func AddToScheme(scheme *runtime.Scheme) {
	scheme.AddKnownTypeWithName(configv1.SchemeGroupVersion.WithKind(Kind), &KubeDeviceArgs{})
	scheme.AddKnownTypeWithName(schedulerconfig.SchemeGroupVersion.WithKind(Kind), &KubeDeviceArgs{})
}
