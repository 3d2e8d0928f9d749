// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1conversion "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/hostile"
)

// What one node may cost at most, counted: the steps of a search up to its limit by the group
// scheduler and by an allocator, with what goes beyond, and what handling the largest requests
// takes.
const (
	mostSteps       = 1_500_000
	mostAllocations = 100_000
	mostBytes       = 24 << 20
)

// TestNoPodCostsANodeMoreWorkThanItsBound climbs toward pods that take much work. The search in
// full is make hostile, which measures time.
func TestNoPodCostsANodeMoreWorkThanItsBound(t *testing.T) {
	const pods = 60
	var searches int64
	for _, machine := range hostile.Machines() {
		t.Run(machine.String(), func(t *testing.T) {
			b, err := hostile.NewBench(machine, 1, 0, true)
			if err != nil {
				t.Fatal(err)
			}
			count, refused := 0, 0
			var steps, allocations int64
			hostile.Climb(machine, 1, func(shape hostile.Shape) (int64, bool) {
				count++
				work, err := b.CountWork(t.Context(), shape.Pod("hostile"))
				if err != nil {
					t.Fatal(err)
				}
				if work.Refused != "" {
					refused++
				}
				steps, allocations = max(steps, work.Steps), max(allocations, work.Allocations)
				if work.Steps > mostSteps || work.Allocations > mostAllocations || work.Bytes > mostBytes {
					t.Errorf("%v: %+v, want %d steps, %d allocations and %d bytes at most", shape, work, mostSteps,
						mostAllocations, mostBytes)
				}
				return work.Steps + 10*work.Allocations, count == pods
			})
			if refused == count {
				t.Errorf("all %d pods are refused at once: nothing was tested", count)
			}
			searches += steps
			t.Logf("%d pods, %d refused at once; at most %d steps, %d allocations", count, refused, steps, allocations)
		})
	}
	if searches == 0 {
		t.Error("no pod takes a step on any machine: they are not hostile")
	}
}

// TestTheAPIServerAcceptsEveryShape validates pods as the API server does.
func TestTheAPIServerAcceptsEveryShape(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	annotated, sidecars := 0, 0
	for _, machine := range hostile.Machines() {
		shape := hostile.First(machine)
		for range 150 {
			shape = shape.Mutate(rng)
			pod := shape.Pod("hostile")
			if len(pod.Annotations[deviceinfo.Annotation]) > 256<<10 {
				shape = hostile.First(machine) // more than all annotations may have together
				continue
			}
			if len(pod.Annotations) > 0 {
				annotated++
			}
			sidecars += shape.Sidecars
			if problems := validate(t, pod); problems != "" {
				t.Fatalf("%v: %s", shape, problems)
			}
		}
	}
	for _, shape := range hostile.Worst() {
		if problems := validate(t, shape.Pod("worst")); problems != "" {
			t.Errorf("%v: %s", shape, problems)
		}
	}
	if annotated == 0 || sidecars == 0 {
		t.Errorf("%d pods have annotations, and all together %d sidecars: nothing was tested", annotated, sidecars)
	}
}

// validate returns what the API server finds wrong with a pod that is created.
func validate(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	pod = pod.DeepCopy()
	pod.UID, pod.ResourceVersion = "", ""
	corev1conversion.SetObjectDefaults_Pod(pod)
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			containers[i].TerminationMessagePolicy = corev1.TerminationMessageReadFile
		}
	}
	internal := &core.Pod{}
	if err := corev1conversion.Convert_v1_Pod_To_core_Pod(pod, internal, nil); err != nil {
		t.Fatal(err)
	}
	if errs := validation.ValidatePodCreate(internal, validation.PodValidationOptions{}); len(errs) > 0 {
		return errs.ToAggregate().Error()
	}
	return ""
}

// TestASearchTakesTheSameWayAgain compares two searches with one seed, and one with another.
func TestASearchTakesTheSameWayAgain(t *testing.T) {
	way := func(seed uint64) (shapes []hostile.Shape) {
		hostile.Climb(hostile.SixtyFourGPUs, seed, func(shape hostile.Shape) (int64, bool) {
			shapes = append(shapes, shape)
			return int64(shape.Devices * shape.Regular), len(shapes) == 300
		})
		return shapes
	}
	if !slices.Equal(way(3), way(3)) {
		t.Error("the same seed leads to other shapes")
	}
	if slices.Equal(way(3), way(4)) {
		t.Error("another seed leads to the same shapes")
	}
}
