// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDirectoriesAreInTheStateDirectory(t *testing.T) {
	directories := func(o *Options) []string {
		return []string{o.devicePluginsDir(), o.registryDir(), o.devicesPath(), o.kubeletPodResourcesPath(),
			o.podResourcesPath()}
	}
	for name, test := range map[string]struct{ args, want []string }{
		"nothing said": {nil, []string{
			"/var/lib/kubedevice/device-plugins", "/var/lib/kubedevice/plugins_registry", "/var/lib/kubedevice/devices",
			"/var/lib/kubelet/pod-resources/kubelet.sock",
			"/var/lib/kubedevice/pod-resources/kubelet.sock",
		}},
		"another state directory": {[]string{"--state-dir=/s"}, []string{
			"/s/device-plugins", "/s/plugins_registry", "/s/devices", "/var/lib/kubelet/pod-resources/kubelet.sock",
			"/s/pod-resources/kubelet.sock",
		}},
		"another root of the kubelet": {[]string{"--state-dir=/s", "--root-dir=/k"}, []string{
			"/s/device-plugins", "/s/plugins_registry", "/s/devices", "/k/pod-resources/kubelet.sock",
			"/s/pod-resources/kubelet.sock",
		}},
	} {
		options, err := parse(append(test.args, "--hostname-override=n")...)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, directories(options)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
