// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"io"
	"os"
	"path/filepath"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	"k8s.io/kubernetes/cmd/kubeadm/app/componentconfigs"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/kubelet"
	"sigs.k8s.io/yaml"
)

// upgradedEndpoint is the endpoint after "kubeadm upgrade node", whose own code writes the
// kubelet's configuration here from the cluster's and the node's instance-config.yaml. It writes to
// a copy: the node's kubelet could do nothing with what kubeadm chooses.
func (s *story) upgradedEndpoint() string {
	s.Helper()
	directory := s.TempDir()
	instance, err := os.ReadFile(s.node.KubeletPath("instance-config.yaml"))
	s.must(err)
	s.must(os.WriteFile(filepath.Join(directory, "instance-config.yaml"), instance, 0o600))
	cluster := &kubeadm.ClusterConfiguration{}
	componentconfigs.Default(cluster, &kubeadm.APIEndpoint{}, &kubeadm.NodeRegistrationOptions{})
	s.must(kubelet.WriteConfigToDisk(cluster, directory, "", io.Discard))
	content, err := os.ReadFile(filepath.Join(directory, "config.yaml"))
	s.must(err)
	written := kubeletconfig.KubeletConfiguration{}
	s.must(yaml.Unmarshal(content, &written))
	return written.ContainerRuntimeEndpoint
}
