// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"bytes"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/test/clustertest"
)

// secretBytes is the name of a Secret whose values are not UTF-8.
const secretBytes = "bytes"

// enlarged are attempts with the proxy, whose request for a container is smaller than what the
// runtime stores and describes to NRI plugins.
func enlarged() []*Attempt {
	var attempts []*Attempt
	for _, way := range []struct {
		id, what string
		shape    func(c *corev1.Container)
	}{
		{"enlarged-bytes", "takes 200 KiB of variables that are not UTF-8, and stored as 600 KiB, from a Secret",
			func(c *corev1.Container) {
				c.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: secretBytes}}}}
			}},
		{"enlarged-volumes", "runs an image with 300 volumes of long paths, which the runtime mounts",
			func(c *corev1.Container) { c.Image = imageVolumes }},
	} {
		try := func(node int) Try {
			return func(ctx context.Context, s *Stage) (Got, error) {
				tenant, err := s.tenant(ctx)
				if err != nil {
					return Got{}, err
				}
				data := map[string][]byte{}
				for i := range 4 {
					data[fmt.Sprintf("BYTES_%d", i)] = bytes.Repeat([]byte{0xff}, 50<<10)
				}
				if _, err := tenant.CoreV1().Secrets(s.namespace).Create(ctx, &corev1.Secret{
					ObjectMeta: metav1.ObjectMeta{Name: secretBytes},
					Data:       data,
				}, metav1.CreateOptions{}); err != nil {
					return Got{}, err
				}
				pod := tolerant(clustertest.On(s.node(node).Name, s.pod("enlarged", 0)))
				way.shape(&pod.Spec.Containers[0])
				return s.runs(ctx, tenant, pod)
			}
		}
		attempts = append(attempts, &Attempt{
			ID: way.id, Who: Tenant, What: way.what, Defence: Bounds, Modes: proxyAlone,
			Want: everywhere(RefusedByNode, "are allowed"), Try: try(scheduled),
			Off: Off{How: "the kubelet calls the runtime without kubecri", Try: try(withoutKubecri)},
		})
	}
	return attempts
}
