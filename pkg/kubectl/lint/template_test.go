// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Pod templates are found by their shape, in kinds that are not known here.
func TestTheTemplatesOfEachKindAreFound(t *testing.T) {
	const pod = `metadata: {annotations: {KubeDevice/DeviceInfo:
      '{"runningcontainer":{"main":{"requests":{"gpu//a":1}}}}'}}, spec: {containers: [{name: main}]}`
	for kind, test := range map[string]struct {
		object string
		paths  []string
	}{
		"Pod":     {pod, []string{""}},
		"Job":     {"spec: {template: {" + pod + "}}", []string{""}},
		"CronJob": {"spec: {jobTemplate: {spec: {template: {" + pod + "}}}}", []string{""}},
		"PodTemplate": {
			"template: {" + pod + "}", []string{""},
		},
		"PyTorchJob": {
			"spec: {pytorchReplicaSpecs: {Master: {template: {" + pod + "}},\n Worker: {template: {" + pod + "}}}}",
			[]string{"spec.pytorchReplicaSpecs.Master.template: ", "spec.pytorchReplicaSpecs.Worker.template: "},
		},
		"LeaderWorkerSet": {
			"spec: {leaderWorkerTemplate: {workerTemplate: {" + pod + "}}}",
			[]string{"spec.leaderWorkerTemplate.workerTemplate: "},
		},
		"JobSet": {
			"spec: {replicatedJobs: [{name: w, template: {spec: {template: {" + pod + "}}}}]}",
			[]string{"spec.replicatedJobs[0].template.spec.template: "},
		},
		"RayCluster": {
			"spec: {headGroupSpec: {template: {" + pod + "}},\n workerGroupSpecs: [{}, {template: {" + pod + "}}]}",
			[]string{"spec.headGroupSpec.template: ", "spec.workerGroupSpecs[1].template: "},
		},
		"JobList":    {"items: [{spec: {template: {" + pod + "}}}]", []string{""}},
		"RayJobList": {"items: [{spec: {x: {" + pod + "}}}]", []string{"spec.x: "}},
		"ConfigMap":  {"data: {spec: {containers: none}}", nil},
		"Deployment": {"spec: {template: {spec: {containers: []}}}", nil},
	} {
		t.Run(kind, func(t *testing.T) {
			found, err := File("f", []byte("{kind: "+kind+", "+test.object+"}"), nil)
			if err != nil {
				t.Fatal(err)
			}
			var paths []string
			for _, f := range found {
				path, _, ok := strings.Cut(f.Message, "annotation KubeDevice/DeviceInfo: runningcontainer")
				if !ok || f.Severity != Error || !strings.HasPrefix(f.Object, strings.TrimSuffix(kind, "List")+" ") {
					t.Errorf("found %+v", f)
				}
				paths = append(paths, path)
			}
			if diff := cmp.Diff(test.paths, paths); diff != "" {
				t.Errorf("paths (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnAnnotationOfAnObjectWithSeveralTemplatesIsFoundOnce(t *testing.T) {
	found, err := File("f", []byte(`kind: RayCluster
metadata: {name: r, annotations: {KubeDevice/DeviceInfo: '{}'}}
spec:
  head: {spec: {containers: [{name: a}]}}
  worker: {spec: {containers: [{name: a}]}}
`), nil)
	if err != nil || len(found) != 1 || !strings.Contains(found[0].Message, "of RayCluster r itself is not read") {
		t.Errorf("found %v, %v", found, err)
	}
}

func TestCountsThatDifferFromTheLimitsAreNamed(t *testing.T) {
	const smaller = `runningcontainer["main"].requests["nvidia.com/gpu"]: the container's limits have 2: ` +
		"the 1 here has no effect, write the same number or remove it"
	for count, want := range map[string]string{
		"0": "nvidia.com/gpu is 0: write how much of it, or remove it", "1": smaller, "2": "",
		"3": `container "main" requests 3 of nvidia.com/gpu in the annotation`,
	} {
		content := `kind: Pod
metadata: {annotations: {KubeDevice/DeviceInfo:
  '{"runningcontainer":{"main":{"requests":{"nvidia.com/gpu":` + count + `}}}}'}}
spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 2}}}]}`
		found, err := File("f", []byte(content), nil)
		if err != nil {
			t.Fatal(err)
		}
		if (len(found) == 0) != (want == "") || want != "" && !strings.Contains(found[0].Message, want) {
			t.Errorf("a count of %s: found %v, want %q", count, found, want)
		}
	}
}
