// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// runtimeSpec is what the OCI runtime reads of a container's config.json, as far as vendors'
// runtimes and hooks obey it. It is the last word: image, pod, kubelet, kubecri, CDI and the
// container runtime itself have contributed to it.
type runtimeSpec struct {
	Process struct {
		// Args and Env are as they stand there, in their order and with all duplicates.
		Args []string `json:"args"`
		Env  []string `json:"env"`
	} `json:"process"`
	Mounts []struct {
		Destination string `json:"destination"`
		Source      string `json:"source"`
	} `json:"mounts"`
	Annotations map[string]string `json:"annotations"`
	Linux       struct {
		Devices []struct {
			Path string `json:"path"`
		} `json:"devices"`
	} `json:"linux"`
}

// values returns the values of all variables of exactly this name, in their order.
func (r *runtimeSpec) values(name string) []string {
	var values []string
	for _, variable := range r.Process.Env {
		if of, value, _ := strings.Cut(variable, "="); of == name {
			values = append(values, value)
		}
	}
	return values
}

// runtimeSpecOf reads the config.json that runc got for a running container of the attempt's
// namespace, init and ephemeral containers included.
func (s *Stage) runtimeSpecOf(ctx context.Context, name, container string) (*runtimeSpec, error) {
	pod, err := s.admin.CoreV1().Pods(s.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	statuses := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses,
		pod.Status.EphemeralContainerStatuses)
	i := slices.IndexFunc(statuses, func(status corev1.ContainerStatus) bool { return status.Name == container })
	if i < 0 || statuses[i].State.Running == nil {
		return nil, fmt.Errorf("container %s of pod %s does not run, so runc has no config.json for it", container,
			name)
	}
	_, id, _ := strings.Cut(statuses[i].ContainerID, "://")
	for _, node := range s.cluster.Nodes {
		if node.Name != pod.Spec.NodeName {
			continue
		}
		content, err := node.Run(ctx, "/bin/cat", "/run/containerd/io.containerd.runtime.v2.task/k8s.io/"+id+
			"/config.json")
		if err != nil {
			return nil, fmt.Errorf("read the config.json of container %s of pod %s: %w", container, name, err)
		}
		spec := &runtimeSpec{}
		if err := json.Unmarshal([]byte(content), spec); err != nil {
			return nil, fmt.Errorf("read the config.json of container %s of pod %s: %w", container, name, err)
		}
		return spec, nil
	}
	return nil, fmt.Errorf("pod %s is on node %q, which the cluster does not have", name, pod.Spec.NodeName)
}

// requests returns whether a running container requests devices from NVIDIA's runtime: it succeeds
// by the last value of the variable in config.json, which that runtime obeys, or without one if the
// image is of the old kind (nvidia-container-toolkit, internal/config/image).
func (s *Stage) requests(ctx context.Context, name, container string) (Got, error) {
	spec, err := s.runtimeSpecOf(ctx, name, container)
	if err != nil {
		return Got{}, err
	}
	values := spec.values(visibleDevices)
	got := Got{NoEffect, fmt.Sprintf("config.json has %s=%q", visibleDevices, values)}
	if len(values) == 0 && len(spec.values("CUDA_VERSION")) > 0 && len(spec.values("NVIDIA_REQUIRE_CUDA")) == 0 {
		return Got{Succeeds, "config.json has CUDA_VERSION without " + visibleDevices}, nil
	}
	if len(values) > 0 && !slices.Contains([]string{"", "void", "none"}, values[len(values)-1]) {
		got.Outcome = Succeeds
	}
	return got, nil
}
