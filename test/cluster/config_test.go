// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"strings"
	"testing"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

func TestTheKubeletsConfigurationIsValidAndTakesItsCgroupFromTheCluster(t *testing.T) {
	content, err := kubeletConfig("/pki/ca.crt", "/kubedevice-x/node-1")
	if err != nil {
		t.Fatal(err)
	}
	var config kubeletconfig.KubeletConfiguration
	if err := yaml.UnmarshalStrict(content, &config); err != nil {
		t.Fatal(err)
	}
	if config.Kind != "KubeletConfiguration" || config.CgroupRoot != "/kubedevice-x/node-1" || config.Authentication.X509.ClientCAFile != "/pki/ca.crt" {
		t.Errorf("configuration:\n%s", content)
	}
}

func TestAPodsNetworkIsValidJSONWithTheNodesRange(t *testing.T) {
	content, err := render(network, map[string]string{"Pods": podRange(0)})
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(content) || !strings.Contains(string(content), "10.78.1.0/24") {
		t.Errorf("network:\n%s", content)
	}
}
