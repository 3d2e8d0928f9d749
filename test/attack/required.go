// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/await"
)

// ownToleration is a key of an administrator's own for pods that tolerate that kubecri is missing.
// The administrator has added it to the policy kubedevice-missing-plugins. One with a slash would
// have one form alone: the API server allows a single slash in the key of an annotation.
const ownToleration = "tolerate.example.com"

// requestsDevices succeeds if a container of the pod that was created last requests devices of
// NVIDIA's runtime, by config.json.
func requestsDevices(ctx context.Context, p *trial, container string) (Got, error) {
	return p.requests(ctx, p.created.Name, container)
}

// requireKubecri kills kubecri on the node forged until the attempt ends. Meanwhile the runtime
// requires it for all containers but those of pods that have an annotation of a key; an empty key
// stands for a runtime that does not require it.
func requireKubecri(ctx context.Context, p *trial, arguments struct {
	Except string `json:"except"`
}) (Got, error) {
	key, node := arguments.Except, p.node(forged)
	file := node.ContainerdConfig()
	before, err := os.ReadFile(file)
	if err != nil {
		return Got{}, err
	}
	configure := func(ctx context.Context, config string) error {
		if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
			return err
		}
		return errors.Join(node.Containerd.Restart(ctx), p.awaitRuntime(ctx))
	}
	const validator = "default_validator]\n    enable = true\n"
	if strings.Count(string(before), validator) != 1 {
		return Got{}, fmt.Errorf("%s does not have %q once", file, validator)
	}
	required := string(before)
	if key != "" {
		required = strings.Replace(required, validator, validator+fmt.Sprintf("    required_plugins = [%q]\n"+
			"    tolerate_missing_plugins_annotation = %q\n", deviceinfo.NRIPlugin, key), 1)
	}
	if err := node.Kubecri.Kill9(ctx); err != nil {
		return Got{}, err
	}
	p.undo = append(p.undo, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
		defer cancel()
		err := errors.Join(configure(ctx, string(before)), node.Kubecri.Start())
		return errors.Join(err, await.Until(ctx, "kubecri to be registered on "+node.Name,
			func(ctx context.Context) (bool, error) {
				// Until it serves that, there is an error.
				ready, err := node.Get(ctx, "/readyz")
				return err == nil && strings.Contains(ready, "[+]nri ok"), nil
			}))
	})
	return Got{}, configure(ctx, required)
}

// awaitRuntime waits until the runtime of the node forged answers.
func (s *Stage) awaitRuntime(ctx context.Context) error {
	runtime, end, err := s.runtime(forged, containerdSocket)
	if err != nil {
		return err
	}
	defer end()
	return await.Until(ctx, "containerd on "+s.node(forged).Name, func(ctx context.Context) (bool, error) {
		_, err := runtime.Version(ctx, &runtimeapi.VersionRequest{})
		return err == nil, nil
	})
}

// coverOwnToleration adds ownToleration to the policy that keeps tenants from such annotations, and
// waits until the API server refuses it.
func (r *run) coverOwnToleration(ctx context.Context) error {
	const path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/kubedevice-missing-plugins"
	keys := fmt.Sprintf("['%s', '%s']", deviceinfo.ToleratedPluginsAnnotation, ownToleration)
	patch, err := json.Marshal([]map[string]string{
		{"op": "test", "path": "/spec/variables/0/name", "value": "keys"},
		{"op": "replace", "path": "/spec/variables/0/expression", "value": keys},
	})
	if err != nil {
		return err
	}
	rest := r.cluster.Client.Discovery().RESTClient()
	if err := rest.Patch(types.JSONPatchType).AbsPath(path).Body(patch).Do(ctx).Error(); err != nil {
		return fmt.Errorf("add a key to the policy kubedevice-missing-plugins: %w", err)
	}
	s := r.stage(&Attempt{ID: "probe"}, 0)
	s.namespace = metav1.NamespaceDefault
	pod := s.pod("probe", 0)
	pod.Annotations = map[string]string{ownToleration: "true"}
	return await.Until(ctx, "the policy to cover "+ownToleration, func(ctx context.Context) (bool, error) {
		_, err := s.admin.CoreV1().Pods(s.namespace).Create(ctx, pod,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		_, refused, err := refusal(err)
		return refused, err
	})
}
