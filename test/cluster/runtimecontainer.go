// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/test/image"
)

// CreateInSandbox has the runtime create a container in the sandbox of a pod of the node, without
// kubelet and kubecri, with the annotations in the runtime passed.
func (n *Node) CreateInSandbox(ctx context.Context, pod *corev1.Pod, name string, annotations map[string]string) error {
	type object = map[string]any
	metadata := object{"name": pod.Name, "namespace": pod.Namespace, "uid": string(pod.UID)}
	for file, content := range map[string]object{
		// When it removes a container without a log, the kubelet removes what is in its own working
		// directory.
		"pod.json": {"metadata": metadata, "linux": object{}, "log_directory": "/var/log/pods/" + string(pod.UID)},
		"container.json": {
			"metadata": object{"name": name}, "image": object{"image": image.Busybox}, "command": []string{"true"},
			"annotations": annotations, "linux": object{}, "log_path": name + ".log",
		},
	} {
		raw, err := json.Marshal(content)
		if err != nil {
			return err
		}
		path := filepath.Join(n.Var(), file)
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			return err
		}
		defer os.Remove(path)
	}
	sandbox, err := n.Run(ctx, "crictl", "pods", "--quiet", "--label=io.kubernetes.pod.uid="+string(pod.UID))
	if err != nil {
		return err
	}
	created, err := n.Run(ctx, "crictl", "create", strings.TrimSpace(sandbox), "/var/container.json", "/var/pod.json")
	if err != nil {
		return fmt.Errorf("create a container in the sandbox of pod %s: %w: %s", pod.Name, err, created)
	}
	return nil
}
