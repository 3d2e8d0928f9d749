// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

// A pod that requests parts of a GPU as HAMi and KAI do is scheduled with the exact device, by the
// scheduler that it names: no node lists HAMi's resources. What is not supported has it wait.
func TestPodsOfHAMiAndKAIAreScheduledUnchanged(t *testing.T) {
	c := newCluster(t)
	c.node("n1", 1) // of 80 GiB
	startSchedulerWith(t, nil, "profiles:\n- schedulerName: default-scheduler\n- schedulerName: kai-scheduler\n")
	hami := func(limits string) string {
		return "containers: [{name: main, image: i, resources: {limits: {" + limits + "}}}]"
	}
	const kai = "schedulerName: kai-scheduler\ncontainers: [{name: main, image: i}]"
	for _, test := range []struct{ name, annotations, spec, gets, waits string }{
		{
			name: "hami", gets: "10Gi",
			spec: hami("nvidia.com/gpu: 1, nvidia.com/gpumem: 10240"),
		},
		{
			name: "hami-percentage", gets: "20Gi",
			spec: hami("nvidia.com/gpumem-percentage: 25"),
		},
		{
			name: "kai", annotations: `gpu-fraction: "0.5"`, gets: "40Gi",
			spec: kai,
		},
		{ // 10 GiB are left
			name: "full", annotations: `gpu-memory: "10241"`, waits: "have no GPU with",
			spec: kai,
		},
		{
			name: "cores", waits: `nvidia.com/gpucores is "130": a GPU has 100 percent of its compute time`,
			spec: hami("nvidia.com/gpumem: 1, nvidia.com/gpucores: 130"),
		},
		{
			name: "binder", annotations: "nvidia.com/container.main.gpus.devices: gpu-0", waits: "KAI's binder alone",
			spec: kai,
		},
	} {
		pod := &corev1.Pod{}
		text := fmt.Sprintf("metadata: {name: %s, annotations: {%s}}", test.name, test.annotations)
		if err := yaml.UnmarshalStrict([]byte(text), pod); err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict([]byte(test.spec), &pod.Spec); err != nil {
			t.Fatal(err)
		}
		pod.Namespace = metav1.NamespaceDefault
		if test.waits != "" {
			c.refusal(c.create(pod), test.waits)
			continue
		}
		info, err := deviceinfo.PodAllocation(c.schedule(pod))
		if err != nil {
			t.Fatal(err)
		}
		main := info.RunningContainers["main"]
		for _, request := range slices.Sorted(maps.Keys(main.AllocateFrom)) {
			got := fmt.Sprintf("%dGi", main.DevRequests[request]>>30)
			if got != test.gets || !strings.HasSuffix(string(main.AllocateFrom[request]), "/memory") {
				t.Errorf("%s: it gets %s of %s, want %s", test.name, got, main.AllocateFrom[request], test.gets)
			}
		}
		if len(main.AllocateFrom) != 1 {
			t.Errorf("%s: it gets %v, want one GPU", test.name, main.AllocateFrom)
		}
	}
}
