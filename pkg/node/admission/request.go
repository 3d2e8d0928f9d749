// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/firewall"
	"github.com/kubedevice/kubedevice/pkg/node/grants"
	"github.com/kubedevice/kubedevice/pkg/node/plugins"
	"github.com/kubedevice/kubedevice/pkg/node/pods"
	podrequest "github.com/kubedevice/kubedevice/pkg/request"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/pkg/seal"
)

// The annotation with which the kubelet says where it has a pod from. A user cannot set it: the
// kubelet overwrites it.
const (
	sourceAnnotation = "kubernetes.io/config.source"
	sourceAPI        = "api"
)

// Pod is a pod as the runtime knows it.
type Pod struct {
	UID, Namespace, Name string
	// Annotations are those that the kubelet gave to its sandbox.
	Annotations map[string]string
}

// Container is a container that is about to be created, or runs. It is read only.
type Container struct {
	Pod Pod
	// Config is what it has without this program: the name in its metadata, variables, mounts,
	// devices, CDI devices, annotations, and whether it is privileged. Nothing else is read.
	Config *runtimeapi.ContainerConfig
	// WithImage says that Config has the variables of the image, too.
	WithImage bool
	// Created is when the runtime created it; the zero time where that is not known, or to come.
	Created time.Time
	// SandboxID is the pod's sandbox in the runtime if Pod has the annotations of the kubelet's
	// request, and empty if it has those that the runtime keeps of the sandbox.
	SandboxID string
}

// podRef is the pod that a container belongs to.
type podRef struct {
	uid, namespace, name string
	fromAPI              bool // the API server has the pod, so it may have been scheduled
	annotations          map[string]string
	annotation           func() (*types.PodInfo, error)
	seal                 string // the annotation KubeDevice/Seal
}

// request is a container that is created. Each step fills its part.
type request struct {
	// By newRequest.
	podRef
	container string
	config    *runtimeapi.ContainerConfig
	withImage bool
	created   time.Time
	sandboxID string

	// By verify: the pod's spec, which may be unknown for a pod that was granted devices before a
	// restart, and the allocation that the pod claims.
	spec       pods.Pod
	claimed    *types.PodInfo
	generation int64 // of its seal, if that was looked at
	verified   verification

	// By verify: it has the devices of the kubelet that are its own, and keeps them.
	keepsKubelets bool

	// By guard, for a container that the firewall does not let through: what it does to it. Nil for
	// all others.
	firewall *firewall.Guard
	guarded  firewall.Container

	// By verify for a pod that has one already, by grant otherwise; nil for a pod that is no device
	// pod.
	granted *grants.Allocation
}

// verification says which allocation was verified for all containers, and by which inventory.
type verification struct {
	allocation *types.PodInfo
	inventory  *plugins.Inventory
}

// newRequest returns the request of a container.
func newRequest(c Container) *request {
	return &request{
		podRef: newPodRef(c.Pod), container: c.Config.GetMetadata().GetName(), config: c.Config, withImage: c.WithImage,
		created: c.Created, sandboxID: c.SandboxID,
	}
}

func newPodRef(pod Pod) podRef {
	return podRef{
		uid:         pod.UID,
		namespace:   pod.Namespace,
		name:        pod.Name,
		fromAPI:     pod.Annotations[sourceAnnotation] == sourceAPI,
		annotations: pod.Annotations,
		annotation:  decodeOnce(pod.Annotations),
		seal:        pod.Annotations[seal.Annotation],
	}
}

// decodeOnce returns a function that decodes the pod's annotation KubeDevice/DeviceInfo when it is
// first called. It returns nil for a pod without the annotation. One that the scheduler does not
// read is an error: it is not decoded where its text cannot have an allocation, and once if it
// has none all the same, as [Refusals] remembers the error.
func decodeOnce(annotations map[string]string) func() (*types.PodInfo, error) {
	value, annotated := annotations[deviceinfo.Annotation]
	if !annotated {
		return func() (*types.PodInfo, error) { return nil, nil }
	}
	return sync.OnceValues(func() (*types.PodInfo, error) {
		long := len(value) > podrequest.MaxRequestBytes
		if long && !strings.Contains(value, allocated) {
			return nil, errTooLong(value)
		}
		info, err := deviceinfo.DecodePod(value)
		if err == nil && long && !allocates(info) {
			return nil, errTooLong(value)
		}
		return info, err
	})
}

func errTooLong(annotation string) error {
	return fmt.Errorf("annotation %s is %d bytes long and has no allocation, and the scheduler reads requests in %d "+
		"bytes at most: request fewer devices, in fewer containers, or use shorter names", deviceinfo.Annotation,
		len(annotation), podrequest.MaxRequestBytes)
}

// allocates reports whether a container of the pod was allocated devices.
func allocates(info *types.PodInfo) bool {
	for _, container := range containersOf(info) {
		if len(container.AllocateFrom) > 0 {
			return true
		}
	}
	return false
}

// allocated is part of each annotation in which the scheduler has written an allocation.
const allocated = `"allocatefrom"`

// objectRef returns the pod for logs.
func (p podRef) objectRef() klog.ObjectRef { return klog.KRef(p.namespace, p.name) }

// object returns the pod for events.
func (p podRef) object() *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: p.namespace, Name: p.name, UID: apitypes.UID(p.uid),
	}
}
