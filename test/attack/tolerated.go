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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/await"
	"github.com/kubedevice/kubedevice/test/cluster"
)

// ownToleration is a key of an administrator's own for pods that tolerate that kubecri is missing.
// The administrator has added it to the policy kubedevice-missing-plugins. One with a slash would
// have one form alone: the API server allows a single slash in the key of an annotation.
const ownToleration = "tolerate.example.com"

// tolerated are attempts of a tenant to have a container created while kubecri is away, by a
// runtime that requires kubecri for all containers. They are judged by the container's config.json.
func tolerated() []*Attempt {
	attempts := []*Attempt{{
		ID: "away-required", Who: Tenant, Defence: Validator, Alone: true,
		What: "sets " + visibleDevices + " to all where the runtime requires kubecri for all containers",
		Want: everywhere(RefusedByNode, `required plugin "kubedevice"`),
		Try:  withoutKubecriRegistered(deviceinfo.ToleratedPluginsAnnotation, nil),
		Off: Off{How: "the runtime requires no plugin",
			Try: withoutKubecriRegistered("", nil)},
	}}
	for _, way := range []struct{ id, what, key, form string }{
		{"away-tolerate", "does so in a pod that tolerates that kubecri is missing",
			deviceinfo.ToleratedPluginsAnnotation, ""},
		{"away-tolerate-pod", "says so in the form for all containers", deviceinfo.ToleratedPluginsAnnotation, "/pod"},
		{"away-tolerate-container", "says so in the form for one container", deviceinfo.ToleratedPluginsAnnotation,
			"/container.main"},
		{"away-tolerate-own", "says so by a key that the administrator has chosen", ownToleration, ""},
		{"away-tolerate-own-pod", "says so by that key in the form for all containers", ownToleration, "/pod"},
		{"away-tolerate-own-container", "says so by that key in the form for one container", ownToleration,
			"/container.main"},
	} {
		attempts = append(attempts, &Attempt{
			ID: way.id, Who: Tenant, What: way.what, Defence: Policies, Alone: true,
			Want: policyElse("lets containers start while kubecri is away", Want{Succeeds, visibleDevices + `=["all"]`}),
			Try:  withoutKubecriRegistered(way.key, map[string]string{way.key + way.form: "true"}),
		})
	}
	return attempts
}

// withoutKubecriRegistered creates a pod with the variable and with annotations. Where the API
// server takes it, kubecri is killed, and the pod is bound. The runtime then requires kubecri for
// all containers but those of pods that tolerate its absence by an annotation of this key; an empty
// key stands for a runtime that does not require it.
func withoutKubecriRegistered(key string, annotations map[string]string) Try {
	return func(ctx context.Context, s *Stage) (Got, error) {
		tenant, err := s.tenant(ctx)
		if err != nil {
			return Got{}, err
		}
		pod := s.pod("tolerant", 0)
		pod.Annotations, pod.Spec.SchedulerName = annotations, absentScheduler
		env("all")(pod)
		created, err := tenant.CreatePod(ctx, pod)
		if got, refused, err := refusal(errors.Unwrap(err)); refused || err != nil {
			return got, err
		}
		node := s.node(forged)
		if err := node.Kubecri.Kill9(ctx); err != nil {
			return Got{}, err
		}
		restore, err := s.requireKubecri(ctx, node, key)
		if err != nil {
			return Got{}, err
		}
		got, err := s.bindAndRead(ctx, created)
		return got, errors.Join(err, restore(context.WithoutCancel(ctx)))
	}
}

// bindAndRead binds a pod that waits, and returns what its container requests if that runs.
func (s *Stage) bindAndRead(ctx context.Context, pod *corev1.Pod) (Got, error) {
	if err := s.bind(ctx, s.admin, pod, nil); err != nil {
		return Got{}, err
	}
	_, got, err := s.awaitState(ctx, pod)
	if err != nil || got.Outcome != Succeeds {
		return got, err
	}
	return s.requests(ctx, pod.Name, "main")
}

// requireKubecri has the runtime of a node, where kubecri does not run, require kubecri for all
// containers but those of pods that have an annotation of this key, unless the key is empty.
// Restore undoes that, starts kubecri, and waits until it is registered.
func (s *Stage) requireKubecri(ctx context.Context, node *cluster.Node, key string) (
	restore func(ctx context.Context) error, err error,
) {
	file := node.ContainerdConfig()
	before, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	configure := func(ctx context.Context, config string) error {
		if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
			return err
		}
		return errors.Join(node.Containerd.Restart(ctx), s.awaitRuntime(ctx))
	}
	const validator = "default_validator]\n    enable = true\n"
	if strings.Count(string(before), validator) != 1 {
		return nil, fmt.Errorf("%s does not have %q once", file, validator)
	}
	required := string(before)
	if key != "" {
		required = strings.Replace(required, validator, validator+fmt.Sprintf("    required_plugins = [%q]\n"+
			"    tolerate_missing_plugins_annotation = %q\n", deviceinfo.NRIPlugin, key), 1)
	}
	restore = func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, attemptLimit)
		defer cancel()
		err := errors.Join(configure(ctx, string(before)), node.Kubecri.Start())
		return errors.Join(err, await.Until(ctx, "kubecri to be registered on "+node.Name,
			func(ctx context.Context) (bool, error) {
				// Until it serves that, there is an error.
				ready, err := node.Get(ctx, "/readyz")
				return err == nil && strings.Contains(ready, "[+]nri ok"), nil
			}))
	}
	if err := configure(ctx, required); err != nil {
		return nil, errors.Join(err, restore(context.WithoutCancel(ctx)))
	}
	return restore, nil
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
