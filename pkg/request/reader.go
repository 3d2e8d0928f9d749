// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kubedevice/kubedevice/pkg/cache"
	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/request/names"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

const (
	// QuickBytes is how many bytes of annotations are read at once that were not read before: that
	// takes 0.5 ms.
	QuickBytes = 2 << 10

	// Pods of one template have the same annotation.
	requestEntries    = 1 << 11
	annotationEntries = 1 << 8

	// attemptEntries is of how many pods the first attempt is remembered. A pod that is forgotten
	// waits again from the start.
	attemptEntries = 1 << 15
)

// Devices knows which extended resources are devices.
type Devices interface {
	// Serves reports whether an extended resource is a device on some node.
	Serves(name types.ResourceName) bool
}

// Reader reads what pods request, each version of a pod once. It is safe for concurrent use.
type Reader struct {
	devices Devices
	clock   clock.PassiveClock

	requests    *cache.BySize[podVersion, read]
	annotations *cache.BySize[string, decoded]

	maxWait  time.Duration                         // see LimitWait
	attempts *cache.Cache[apitypes.UID, time.Time] // when pods were first attempted
	fixed    bool                                  // see Copy: nothing is attempted
}

// NewReader returns a reader that has read nothing.
func NewReader(devices Devices, clk clock.PassiveClock) *Reader {
	return &Reader{
		devices: devices, clock: clk,
		requests:    cache.NewBySize[podVersion, read](requestEntries),
		annotations: cache.NewBySize[string, decoded](annotationEntries),
		attempts:    cache.New[apitypes.UID, time.Time](attemptEntries),
	}
}

// Copy returns a reader for another set of devices, which shares what was read. It notes no
// attempts.
func (r *Reader) Copy(devices Devices) *Reader {
	copied := *r
	copied.devices, copied.fixed = devices, true
	return &copied
}

// Read returns what the pod requests, or nil when it requests no device on any node. A device pod
// is one that has requests in its annotation or by the names of HAMi and KAI, or one that counts an
// extended resource which is a device on some node; on which nodes it is one, each node decides. A
// pod that comes with an allocation and requests nothing has an empty request: it is to be bound
// without that allocation. The error says why the annotation cannot be read, which name cannot be
// served (see [WithNames]), or which key is misspelled. A pod with a
// misspelled [deviceinfo.Annotation] gets that error too if it requests nothing else.
//
// It is read once for each version of a pod, since queueing hints need it for each pod that waits
// and each event. No node changes what is read.
func (r *Reader) Read(pod *corev1.Pod) (*Request, error) {
	counts, annotation := r.CountsDevices(pod), pod.Annotations[deviceinfo.Annotation]
	if !counts && annotation == "" && !requestsByName(pod) {
		return nil, checkAnnotations(pod.Annotations, false)
	}
	version, known := podVersion{pod.UID, pod.ResourceVersion, r.hasWaited(pod)}, r.requests.For(len(annotation))
	found, ok := known.Get(version)
	if !ok {
		found = r.read(pod, annotation, version.waited)
		known.Add(version, found)
	}
	if found.byCount && !counts {
		return nil, nil
	}
	return found.Request, found.err
}

// ReadQuickly is Read if that takes microseconds: known says that the request is known, or short.
func (r *Reader) ReadQuickly(pod *corev1.Pod) (request *Request, known bool, err error) {
	annotation := pod.Annotations[deviceinfo.Annotation]
	if len(annotation) > QuickBytes {
		_, known = r.requests.For(len(annotation)).Get(podVersion{pod.UID, pod.ResourceVersion, r.hasWaited(pod)})
		if !known {
			_, known = r.annotations.For(len(annotation)).Get(annotation)
		}
		if !known {
			return nil, false, nil
		}
	}
	request, err = r.Read(pod)
	return request, true, err
}

// MayRequest reports whether Read returns anything for the pod, on any nodes. It errs toward true.
func MayRequest(pod *corev1.Pod) bool {
	return pod.Annotations[deviceinfo.Annotation] != "" || CountsExtended(pod) || requestsByName(pod) ||
		checkAnnotations(pod.Annotations, false) != nil
}

// MayHold reports whether the pod may hold devices, or be about to. It errs toward true.
func (r *Reader) MayHold(pod *corev1.Pod) bool {
	return pod.Annotations[deviceinfo.Annotation] != "" || r.CountsDevices(pod) || requestsByName(pod)
}

// CountsDevices reports whether the pod counts an extended resource that is a device on some node.
func (r *Reader) CountsDevices(pod *corev1.Pod) bool { return Counts(pod, r.devices.Serves) }

// LimitWait sets how long a pod waits for the best devices of all nodes, from the first attempt to
// schedule it; 0 is for ever. It is called before the reader is used, and where a plugin has pods
// wait.
func (r *Reader) LimitWait(longest time.Duration) { r.maxWait = longest }

// Attempt notes that the pod is about to be scheduled.
func (r *Reader) Attempt(pod *corev1.Pod) {
	if r.fixed || r.maxWait == 0 {
		return
	}
	if _, known := r.attempts.Get(pod.UID); !known {
		r.attempts.Add(pod.UID, r.clock.Now())
	}
}

// hasWaited reports whether the pod has waited for as long as it may.
func (r *Reader) hasWaited(pod *corev1.Pod) bool {
	if r.maxWait == 0 {
		return false
	}
	first, known := r.attempts.Get(pod.UID)
	return known && r.clock.Since(first) >= r.maxWait
}

// CacheStats returns what the caches have done so far, by their names.
func (r *Reader) CacheStats() map[string]cache.Stats {
	return map[string]cache.Stats{"pod_requests": r.requests.Stats(), "pod_annotations": r.annotations.Stats()}
}

// podVersion is all that a pod's request depends on.
type podVersion struct {
	uid     apitypes.UID
	version string
	waited  bool
}

// read is what a pod requests, or why that cannot be read.
type read struct {
	*Request
	byCount bool // it can be read, is only for counts of extended resources, or for nothing, and not forged
	err     error
}

func (r *Reader) read(pod *corev1.Pod, annotation string, waited bool) read {
	count := len(pod.Spec.InitContainers) + len(pod.Spec.Containers)
	if err := CheckSize(count, annotation); err != nil {
		return read{err: err}
	}
	written, err := r.decode(annotation)
	if err != nil {
		return read{err: err}
	}
	check, bound := CheckRequests, pod.Spec.NodeName != ""
	if bound { // a pod that runs is not refused
		check = CheckCounts
	} else if written, err = WithNames(pod, written); err != nil {
		return read{err: err}
	}
	if err := check(written); err != nil {
		return read{err: err}
	}
	info, err := deviceinfo.PodRequest(pod, written)
	if err != nil {
		return read{err: err}
	}
	request := &Request{
		Pod: info, Containers: Containers(pod), Forged: Allocates(written), Choice: names.ChoiceOf(pod), Waited: waited,
	}
	if !bound {
		err = checkAnnotations(pod.Annotations, true)
	}
	return read{Request: request, byCount: request.ByCountOnly() && !request.Forged, err: err}
}

// Mistakes returns the mistakes in the annotations of a pod that is not bound: those in its
// request, and those in other annotations if it may request devices. It returns none for what Read
// returns an error for.
func (r *Reader) Mistakes(pod *corev1.Pod) (inRequest, others []Mistake) {
	if !r.MayHold(pod) {
		return nil, nil
	}
	others = annotationMistakes(pod.Annotations)
	annotation := pod.Annotations[deviceinfo.Annotation]
	if annotation == "" || len(annotation) > MaxRequestBytes {
		return nil, others
	}
	inRequest = r.decoded(annotation).mistakes
	if request, err := r.Read(pod); err == nil && request != nil {
		inRequest = append(slices.Clip(inRequest), smallerCounts(request.Pod)...)
	}
	return inRequest, others
}

// Exclusions returns the devices that a pod excludes, which is not bound.
func (r *Reader) Exclusions(pod *corev1.Pod) []Exclusion {
	annotation := pod.Annotations[deviceinfo.Annotation]
	if annotation == "" || len(annotation) > MaxRequestBytes {
		return nil
	}
	return r.decoded(annotation).excluded
}

// decoded is what an annotation says, or why it cannot be read.
type decoded struct {
	*types.PodInfo
	mistakes []Mistake
	excluded []Exclusion
	err      error
}

// decode reads the annotation of a pod that is not bound, which may be absent. What it returns must
// not be changed.
func (r *Reader) decode(annotation string) (*types.PodInfo, error) {
	if annotation == "" {
		return &types.PodInfo{}, nil
	}
	found := r.decoded(annotation)
	return found.PodInfo, found.err
}

// decoded reads an annotation once.
func (r *Reader) decoded(annotation string) decoded {
	known := r.annotations.For(len(annotation))
	if found, ok := known.Get(annotation); ok {
		return found
	}
	pod, source, err := deviceinfo.LocatePod(annotation)
	found := decoded{PodInfo: pod, err: err}
	if err == nil {
		found.mistakes, found.excluded = Mistakes(pod, source), Exclusions(pod)
	}
	known.Add(annotation, found)
	return found
}
