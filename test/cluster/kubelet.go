// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// kubeletConfig returns the kubelet's configuration file. Most of it makes the kubelet at home on a
// machine that is not a node: whose swap, disks, DNS and firewall are none of its business, and
// which may still have cgroups of version 1.
func kubeletConfig(clientCA, cgroupRoot string) ([]byte, error) {
	content, err := yaml.Marshal(kubeletconfig.KubeletConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: kubeletconfig.SchemeGroupVersion.String(), Kind: "KubeletConfiguration"},
		Authentication: kubeletconfig.KubeletAuthentication{
			X509:      kubeletconfig.KubeletX509Authentication{ClientCAFile: clientCA},
			Webhook:   kubeletconfig.KubeletWebhookAuthentication{Enabled: ptr.To(true)},
			Anonymous: kubeletconfig.KubeletAnonymousAuthentication{Enabled: ptr.To(false)},
		},
		Authorization: kubeletconfig.KubeletAuthorization{Mode: kubeletconfig.KubeletAuthorizationModeWebhook},

		CgroupDriver: "cgroupfs",
		CgroupRoot:   cgroupRoot,
		FailCgroupV1: ptr.To(false),
		FailSwapOn:   ptr.To(false),

		MakeIPTablesUtilChains: ptr.To(false),
		ResolverConfig:         ptr.To(""),
		ClusterDNS:             []string{"10.96.0.10"},
		ClusterDomain:          "cluster.local",

		// The machine's disks may be as full as they like.
		EvictionHard: map[string]string{
			"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%",
			"imagefs.inodesFree": "0%",
		},
		ImageGCHighThresholdPercent: ptr.To[int32](100),
		ImageGCLowThresholdPercent:  ptr.To[int32](99),

		VolumePluginDir:       "/var/lib/kubelet/volume-plugins",
		RuntimeRequestTimeout: metav1.Duration{},
		MaxPods:               110,
	})
	if err != nil {
		return nil, fmt.Errorf("write the kubelet's configuration: %w", err)
	}
	return content, nil
}
