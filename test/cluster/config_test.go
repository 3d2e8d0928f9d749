// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"fmt"
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
	if config.Kind != "KubeletConfiguration" || config.CgroupRoot != "/kubedevice-x/node-1" ||
		config.Authentication.X509.ClientCAFile != "/pki/ca.crt" {
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

func TestARegistryStandsInForAllOthersOnNodesThatHaveOne(t *testing.T) {
	for runtime := range runtimes {
		for _, registry := range []string{"", "http://127.0.0.1:5000"} {
			t.Run(fmt.Sprintf("%s, registry %q", runtime, registry), func(t *testing.T) {
				c := &Cluster{layout: layout{"/cluster"}, options: Options{Programs: "/programs"}}
				node := c.newNode(0, NodeOptions{Runtime: runtime, Registry: registry})
				files, err := node.containerdFiles()
				if err != nil {
					t.Fatal(err)
				}
				config, hosts := string(files["containerd.toml"]), string(files["registries/_default/hosts.toml"])
				if !strings.Contains(config, containerdSocket) || !strings.Contains(config, "/programs/runc") {
					t.Errorf("containerd.toml:\n%s", config)
				}
				requested := strings.Contains(config, `config_path = "`+node.file("registries")+`"`)
				if wanted := registry != ""; requested != wanted || (hosts != "") != wanted ||
					!strings.Contains(hosts, registry) {
					t.Errorf("containerd.toml:\n%s\nhosts.toml:\n%s", config, hosts)
				}
			})
		}
	}
}

func TestANodeRunsTheProgramsOfItsRuntime(t *testing.T) {
	c := &Cluster{layout: layout{"/cluster"}, options: Options{Programs: "/programs"}}
	for runtime, want := range map[Runtime]string{"": "/programs", Containerd24: "/programs",
		Containerd17: "/programs/containerd-1.7", Containerd23: "/programs/containerd-2.3"} {
		program := c.newNode(0, NodeOptions{Runtime: runtime}).containerd()
		if program.Path != want+"/containerd" || !strings.HasPrefix(program.Env[0], "PATH="+want+":") {
			t.Errorf("runtime %q: %s with %s, want those in %s", runtime, program.Path, program.Env, want)
		}
	}
}
