// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// annotated returns a pod with this annotation, or without one for "".
func annotated(value string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "train"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
	}
	if value != "" {
		pod.Annotations = map[string]string{Annotation: value}
	}
	for _, f := range change {
		f(pod)
	}
	return pod
}

func onNode(pod *corev1.Pod) { pod.Spec.NodeName = "n1" }

const (
	requestsGPU      = `{"runningcontainer":{"main":{"requests":{"gpu/a/cards":1}}}}`
	otherRequestsGPU = `{"runningcontainer":{"main":{"requests":{"gpu/a/cards":2}}}}`
	allocated        = `{"podname":"train","nodename":"n1",` +
		`"runningcontainer":{"main":{"devrequests":{"resource/group/gpu/a/cards":1},` +
		`"allocatefrom":{"resource/group/gpu/a/cards":"resource/group/gpu/GPU-0/cards"}}}}`
	stolen = `{"podname":"train","nodename":"n1",` +
		`"runningcontainer":{"main":{"devrequests":{"resource/group/gpu/a/cards":1},` +
		`"allocatefrom":{"resource/group/gpu/a/cards":"resource/group/gpu/GPU-1/cards"}}}}`
)

func TestOnlyTheSchedulerWritesAllocations(t *testing.T) {
	const ada, kubelet, scheduler = "ada", "system:node:n1", "system:kube-scheduler"
	bound := annotated(allocated, onNode)
	for name, test := range map[string]struct {
		request
		refused string // a part of the message
	}{
		"a user requests devices": {
			request{user: ada, resource: "pods", object: annotated(requestsGPU)}, "",
		},
		"a user requests nothing": {
			request{user: ada, resource: "pods", object: annotated("")}, "",
		},
		"a user changes the request of a pending pod": {
			request{user: ada, resource: "pods", object: annotated(otherRequestsGPU), old: annotated(requestsGPU)}, "",
		},
		"a user creates a pod with a request on a node": {
			request{user: ada, resource: "pods", object: annotated(requestsGPU, onNode)}, "",
		},
		"a user creates a pod with an allocation": {
			request{user: ada, resource: "pods", object: annotated(allocated)}, "pod team/train: the annotation",
		},
		"a user creates one on a node, with an allocation": {
			request{user: ada, resource: "pods", object: annotated(allocated, onNode)}, "remove them",
		},
		"the scheduler creates one on a node, with one": {
			request{user: scheduler, resource: "pods", object: annotated(allocated, onNode)},
			"cannot be created with both",
		},
		"a controller creates a pod from a forged template": {
			request{
				user: "system:serviceaccount:kube-system:replicaset-controller", resource: "pods",
				object: annotated(allocated, unnamed),
			},
			"pod team/train-*: ",
		},
		"a user forges an allocation before binding": {
			request{user: ada, resource: "pods", object: annotated(allocated), old: annotated(requestsGPU)},
			"only the device scheduler may write",
		},
		"a user takes another device after binding": {
			request{user: ada, resource: "pods", object: annotated(stolen, onNode), old: bound},
			"only the device scheduler may",
		},
		"a user does it through the status": {
			request{user: ada, resource: "pods/status", object: annotated(stolen, onNode), old: bound},
			"only the device scheduler may",
		},
		"a user does it through ephemeral containers": {
			request{user: ada, resource: "pods/ephemeralcontainers", object: annotated(stolen, onNode), old: bound},
			"only the device scheduler may",
		},
		"a user does it through a resize": {
			request{user: ada, resource: "pods/resize", object: annotated(stolen, onNode), old: bound},
			"only the device scheduler may",
		},
		"a node does it to a pod of its own": {
			request{user: kubelet, resource: "pods/status", object: annotated(stolen, onNode), old: bound},
			"only the device scheduler may",
		},
		"a user removes the allocation": {
			request{user: ada, resource: "pods", object: annotated("", onNode), old: bound},
			"leave it as it is, or delete the pod",
		},
		"a user replaces the allocation by a request": {
			request{user: ada, resource: "pods", object: annotated(requestsGPU, onNode), old: bound},
			"leave it as it is",
		},
		"the kubelet updates the status of a bound pod": {
			request{user: kubelet, resource: "pods/status", object: bound, old: bound}, "",
		},
		"a user labels a bound pod": {
			request{user: ada, resource: "pods", object: annotated(allocated, onNode, labelled), old: bound}, "",
		},
		"the scheduler writes an allocation": {
			request{user: scheduler, resource: "pods", object: bound, old: annotated(requestsGPU)}, "",
		},
		"a user seals a pod": {
			request{user: ada, resource: "pods", object: annotated(requestsGPU, sealed), old: annotated(requestsGPU)},
			"may write or remove the annotation KubeDevice/Seal",
		},
		"a user creates a sealed pod": {
			request{user: ada, resource: "pods", object: annotated("", sealed)},
			"may write or remove the annotation KubeDevice/Seal",
		},
		"a user removes the seal of a bound pod": {
			request{user: ada, resource: "pods", object: bound, old: annotated(allocated, onNode, sealed)},
			"may write or remove the annotation KubeDevice/Seal",
		},
		"the kubelet updates the status of a sealed pod": {
			request{
				user: kubelet, resource: "pods/status", object: annotated(allocated, onNode, sealed),
				old: annotated(allocated, onNode, sealed),
			},
			"",
		},
		"the scheduler writes a seal": {
			request{user: scheduler, resource: "pods", object: annotated(allocated, onNode, sealed), old: bound}, "",
		},
		"a user spells a word with an escape": {
			request{
				user: ada, resource: "pods",
				object: annotated(strings.ReplaceAll(allocated, "nodename", `node\u006eame`)),
			},
			"backslash",
		},
		"a user writes a word in another case": {
			request{user: ada, resource: "pods", object: annotated(`{"NodeName":"n1"}`)}, "nodename",
		},
		"a user writes a value beyond the limit": {
			request{user: ada, resource: "pods", object: annotated(strings.Repeat("x", 4*MaxBytes))}, "cost",
		},
		"a user writes the largest value that is allowed": {
			request{user: ada, resource: "pods", object: annotated(strings.Repeat("x", MaxBytes-len(Annotation)))}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			checkRefusal(t, readPolicy(t, "kubedevice-pod-allocations"), test.request, test.refused)
		})
	}
}

// sealKey is the annotation of package seal, which this package does not import.
const sealKey = "KubeDevice/Seal"

func sealed(pod *corev1.Pod)   { metav1.SetMetaDataAnnotation(&pod.ObjectMeta, sealKey, "a.b.c") }
func unnamed(pod *corev1.Pod)  { pod.GenerateName, pod.Name = pod.Name+"-", "" }
func labelled(pod *corev1.Pod) { pod.Labels = map[string]string{"a": "b"} }

// checkRefusal checks that a policy refuses a request with a message that contains want, or admits
// it for "".
func checkRefusal(t *testing.T, p *policy, r request, want string) {
	t.Helper()
	got := p.refusal(t, r)
	if (got != "") != (want != "") || !strings.Contains(got, want) {
		t.Errorf("refusal %q, want it to have %q", got, want)
	}
}

func TestOnlyTheSchedulerSendsAllocationsWithABinding(t *testing.T) {
	binding := func(annotations map[string]string) *corev1.Binding {
		return &corev1.Binding{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Binding"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "train", Annotations: annotations},
			Target:     corev1.ObjectReference{Kind: "Node", Name: "n1"},
		}
	}
	carries := binding(map[string]string{Annotation: allocated})
	for name, test := range map[string]struct {
		request
		refused string
	}{
		"the scheduler binds": {
			request{user: "system:kube-scheduler", resource: "pods/binding", object: carries}, "",
		},
		"another scheduler binds without it": {
			request{user: "other", resource: "pods/binding", object: binding(nil)}, "",
		},
		"another scheduler binds with its own annotation": {
			request{user: "other", resource: "bindings", object: binding(map[string]string{"other": "x"})}, "",
		},
		"another scheduler binds with it": {
			request{user: "other", resource: "pods/binding", object: carries},
			"binding of pod team/train: only the device scheduler",
		},
		"a user does so through the old path": {
			request{user: "ada", resource: "bindings", object: carries}, "only the device scheduler",
		},
		"a user clears the allocation with a binding": {
			request{user: "ada", resource: "pods/binding", object: binding(map[string]string{Annotation: ""})},
			"remove them",
		},
		"a user sends a seal with a binding": {
			request{user: "ada", resource: "pods/binding", object: binding(map[string]string{sealKey: "a.b.c"})},
			"KubeDevice/Seal with a binding: remove them",
		},
		"the scheduler sends both": {
			request{
				user: "system:kube-scheduler", resource: "pods/binding",
				object: binding(map[string]string{Annotation: allocated, sealKey: "a.b.c"}),
			}, "",
		},
	} {
		t.Run(name,
			func(t *testing.T) { checkRefusal(t, readPolicy(t, "kubedevice-bindings"), test.request, test.refused) })
	}
}

// The policy covers only the namespace of these leases: nodes and controllers may write other
// leases.
func TestOnlySchedulersPublishTheirAddress(t *testing.T) {
	p := readPolicy(t, "kubedevice-scheduler-addresses")
	if diff := cmp.Diff(map[string]string{"kubernetes.io/metadata.name": "kubedevice-schedulers"},
		p.spec.MatchConstraints.NamespaceSelector.MatchLabels); diff != "" {
		t.Errorf("namespaces (-want +got):\n%s", diff)
	}
	lease := &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "kubedevice-schedulers", Name: "cp1-10262"},
	}
	for name, test := range map[string]struct {
		request
		refused string
	}{
		"the scheduler": {request{user: "system:kube-scheduler", object: lease}, ""},
		"the second scheduler": {
			request{user: "system:serviceaccount:kubedevice-system:kubedevice-scheduler", object: lease}, "",
		},
		"an editor creates one": {
			request{user: "ada", object: lease}, "lease kubedevice-schedulers/cp1-10262: only",
		},
		"an administrator changes one": {
			request{user: "root", groups: []string{"system:masters"}, object: lease, old: lease}, "only",
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.request.resource = "leases"
			checkRefusal(t, p, test.request, test.refused)
		})
	}
}

func TestOnlyANodeWritesItsInventory(t *testing.T) {
	node := func(value string) *corev1.Node {
		n := &corev1.Node{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
			ObjectMeta: metav1.ObjectMeta{Name: "n1"},
		}
		if value != "" {
			n.Annotations = map[string]string{Annotation: value}
		}
		return n
	}
	holding := func(value string) *corev1.Node {
		n := node(value)
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, HoldersAnnotation, "[]")
		return n
	}
	unhealthy := func(value string) *corev1.Node {
		n := node(value)
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, UnhealthyAnnotation, "[]")
		return n
	}
	described := func(value string) *corev1.Node {
		n := node(value)
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, AttributesAnnotation, "{}")
		return n
	}
	used := func(value string) *corev1.Node {
		n := node(value)
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, UsageAnnotation, "{}")
		return n
	}
	withRequest := func(value string) *corev1.Node {
		n := node(value)
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, ReplacementsAnnotation, "{}")
		return n
	}
	nodes := []string{"system:nodes", "system:authenticated"}
	for name, test := range map[string]struct {
		request
		refused string
	}{
		"the node writes it": {
			request{user: "system:node:n1", groups: nodes, resource: "nodes", object: node("{}"), old: node("")}, "",
		},
		"the node removes it": {
			request{user: "system:node:n1", groups: nodes, resource: "nodes", object: node(""), old: node("{}")}, "",
		},
		"the node registers with it": {
			request{user: "system:node:n1", groups: nodes, resource: "nodes", object: node("{}")}, "",
		},
		"another node writes it": {
			request{user: "system:node:n2", groups: nodes, resource: "nodes", object: node("{}"), old: node("")},
			"node n1: only the node itself",
		},
		"a user of that name who is no node does": {
			request{user: "system:node:n1", resource: "nodes", object: node("{}"), old: node("")},
			"only the node itself",
		},
		"an operator writes it": {
			request{user: "ada", resource: "nodes", object: node(`{"used":{}}`), old: node("{}")},
			"leave it to kubecri",
		},
		"an operator writes it through the status": {
			request{user: "ada", resource: "nodes/status", object: node(`{"used":{}}`), old: node("{}")},
			"leave it to kubecri",
		},
		"an operator says that a device is unhealthy": {
			request{user: "ada", resource: "nodes/status", object: unhealthy("{}"), old: node("{}")},
			"leave it to kubecri",
		},
		"an operator describes a device": {
			request{user: "ada", resource: "nodes/status", object: described("{}"), old: node("{}")},
			"leave it to kubecri",
		},
		"the node describes a device": {
			request{user: "system:node:n1", groups: nodes, resource: "nodes/status", object: described("{}"),
				old: node("{}")}, "",
		},
		"an operator says how devices are used": {
			request{user: "ada", resource: "nodes/status", object: used("{}"), old: node("{}")},
			"leave it to kubecri",
		},
		"the node says how devices are used": {
			request{user: "system:node:n1", groups: nodes, resource: "nodes/status", object: used("{}"),
				old: node("{}")}, "",
		},
		"an operator requests other devices": {
			request{user: "ada", resource: "nodes/status", object: withRequest("{}"), old: node("{}")},
			"leave it to kubecri",
		},
		"the node requests other devices": {
			request{user: "system:node:n1", groups: nodes, resource: "nodes/status", object: withRequest("{}"),
				old: node("{}")}, "",
		},
		"the node says that a device is unhealthy": {
			request{user: "system:node:n1", groups: nodes, resource: "nodes/status", object: unhealthy("{}"),
				old: node("{}")}, "",
		},
		"an operator removes it": {
			request{user: "ada", resource: "nodes", object: node(""), old: node("{}")}, "leave it to kubecri",
		},
		"a member of system:masters repairs it": {
			request{
				user: "root", groups: []string{"system:masters"}, resource: "nodes", object: node(""), old: node("{}"),
			},
			"",
		},
		"an operator writes holders": {
			request{user: "ada", resource: "nodes", object: holding("{}"), old: node("{}")}, "leave it to kubecri",
		},
		"the node writes holders": {
			request{
				user: "system:node:n1", groups: nodes, resource: "nodes/status", object: holding("{}"), old: node("{}"),
			},
			"",
		},
		"a controller changes something else about it": {
			request{user: "cloud", resource: "nodes", object: node("{}"), old: node("{}")}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			checkRefusal(t, readPolicy(t, "kubedevice-node-inventories"), test.request, test.refused)
		})
	}
}

func TestRequestsInTheAnnotationNeedLimits(t *testing.T) {
	limited := func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Resources.Limits = resources("nvidia.com/gpu", "1", "cpu", "1")
	}
	onlyCPU := func(pod *corev1.Pod) { pod.Spec.Containers[0].Resources.Limits = resources("cpu", "1") }
	initial := func(pod *corev1.Pod) { pod.Spec.InitContainers = []corev1.Container{{Name: "prepare"}} }
	const initRequestsGPU = `{"initcontainer":{"prepare":{"requests":{"gpu/a/cards":1}}}}`
	for name, test := range map[string]struct {
		object  *corev1.Pod
		refused string
	}{
		"requests devices in both": {annotated(requestsGPU, limited), ""},
		"requests devices in the annotation only": {
			annotated(requestsGPU), "pod team/train: container main asks for devices in the annotation",
		},
		"requests CPU in its limits":         {annotated(requestsGPU, onlyCPU), "add the device resource"},
		"an init container requests devices": {annotated(initRequestsGPU, limited, initial), "container prepare"},
		"requests no devices":                {annotated(`{"runningcontainer":{}}`), ""},
		"has no annotation":                  {annotated(""), ""},
	} {
		t.Run(name, func(t *testing.T) {
			checkRefusal(t, readPolicy(t, "kubedevice-requests-need-limits"),
				request{user: "ada", resource: "pods", object: test.object}, test.refused)
		})
	}
}
