// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package names

import (
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// gpus is the extended resource that counts GPUs, under all names.
const gpus corev1.ResourceName = "nvidia.com/gpu"

// maxGPUs is the largest number of GPUs of which a container gets parts.
const maxGPUs = 128

// millionths are a whole of what requests in millionths are parts of.
const millionths = 1_000_000

// mebibyte is the unit of HAMi's and KAI's memory, and maxMemory the most of it that a GPU may
// have, in MiB. More of it lacks a unit, or has one too many.
const (
	mebibyte  = 1 << 20
	maxMemory = 16 << 20
)

// Error is a name, or the value of one, that cannot be served: it is a mistake, or not supported.
type Error struct {
	// Container is the container that the name is for. It is empty for annotations of the pod.
	Container string
	// Key is the extended resource or the key of the annotation, and Value what is written there.
	Key, Value string
	// Annotation says that Key is the key of an annotation.
	Annotation bool
	// Problem says what is wrong, and what to write.
	Problem string
}

// Error returns where the name is, its value, the problem and what to do.
func (e *Error) Error() string {
	where := fmt.Sprintf("container %q: %s", e.Container, e.Key)
	if e.Annotation {
		where = "annotation " + e.Key
	}
	return fmt.Sprintf("%s is %q: %s", where, e.Value, e.Problem)
}

// Compiled is what a pod requests by the names of HAMi and KAI.
type Compiled struct {
	// Requests are requests as in the annotation KubeDevice/DeviceInfo, by container. A container
	// that requests nothing by these names is not in it.
	Requests map[string]types.ResourceList
	// Errors are all errors: those of containers in the order of the spec, then those of
	// annotations in the order of their keys.
	Errors []*Error
}

// Compile compiles the names that a pod uses. It returns nil for a pod that uses none.
func Compile(pod *corev1.Pod) *Compiled {
	keys := annotationsOf(pod)
	if len(keys) == 0 && !countsParts(pod) {
		return nil
	}
	c := &compiler{pod: pod, compiled: Compiled{Requests: map[string]types.ResourceList{}}}
	for container := range containersOf(pod) {
		c.hamiContainer(container)
	}
	c.hamiAnnotations(keys)
	c.kai(keys)
	return &c.compiled
}

// Requests reports whether a pod requests devices by these names. Names that only say which
// devices, or how, request none.
func Requests(pod *corev1.Pod) bool { return InAnnotations(pod.Annotations) || countsParts(pod) }

// InAnnotations reports whether one of a pod's annotations requests devices by these names.
func InAnnotations(annotations map[string]string) bool {
	for key := range annotations {
		if isRequest(key) {
			return true
		}
	}
	return false
}

// SameAnnotations reports whether two versions of a pod have the same annotations of these names.
func SameAnnotations(a, b *corev1.Pod) bool {
	return included(a.Annotations, b.Annotations) && included(b.Annotations, a.Annotations)
}

// included reports whether all annotations of these names are in another list, with their values.
func included(list, other map[string]string) bool {
	for key, value := range list {
		if found, ok := other[key]; isAnnotation(key) && (!ok || found != value) {
			return false
		}
	}
	return true
}

// compiler compiles the names of one pod.
type compiler struct {
	pod      *corev1.Pod
	compiled Compiled
}

// refuse adds the error of an annotation.
func (c *compiler) refuse(key, format string, args ...any) {
	c.compiled.Errors = append(c.compiled.Errors, &Error{
		Key: key, Value: c.pod.Annotations[key], Annotation: true, Problem: fmt.Sprintf(format, args...),
	})
}

// share is a part of each of some GPUs, of which a container gets no two on the same one.
type share struct {
	// memory is in bytes, and millionths a part of the memory that a GPU has. One of them is 0.
	memory, millionths int64
	// cores are percent of the compute time of a GPU. They come with memory or millionths.
	cores int64
	// alone says that the container gets the GPU for itself.
	alone bool
}

// add adds the requests for parts of so many GPUs to a container.
func (c *compiler) add(container string, n int64, s share) {
	requests := types.ResourceList{}
	for i := range n {
		device := fmt.Sprintf("gpu/!%d/", i)
		if s.memory > 0 {
			requests[types.ResourceName(device+"memory")] = s.memory
		}
		if s.millionths > 0 {
			requests[types.ResourceName(device+"memory-millionths")] = s.millionths
		}
		if s.cores > 0 {
			requests[types.ResourceName(device+"cores")] = s.cores
		}
		if s.alone {
			requests[types.ResourceName(device+"cards")] = 1
		}
	}
	c.compiled.Requests[container] = requests
}

// containersOf yields the containers of a pod, init containers first.
func containersOf(pod *corev1.Pod) func(func(*corev1.Container) bool) {
	return func(yield func(*corev1.Container) bool) {
		for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

// written returns what a container requests of an extended resource. ok is false if its spec does
// not name it.
func written(container *corev1.Container, name corev1.ResourceName) (quantity apiresource.Quantity, ok bool) {
	if quantity, ok = container.Resources.Requests[name]; ok {
		return quantity, true
	}
	quantity, ok = container.Resources.Limits[name]
	return quantity, ok
}

// wholeNumber returns the number that a quantity is. ok is false for one that is negative or no
// whole number.
func wholeNumber(quantity apiresource.Quantity) (number int64, ok bool) {
	number, exact := quantity.AsInt64()
	if !exact {
		number = quantity.Value()
		exact = quantity.CmpInt64(number) == 0
	}
	return number, exact && number >= 0 && number < math.MaxInt64
}
