// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The runtime reads the three forms of the key that its configuration names, for any key.
func TestNoTenantToleratesThatKubecriIsAway(t *testing.T) {
	const own, refused = "tolerate.example.com", "lets containers start while kubecri is away"
	policy := readPolicy(t, "kubedevice-missing-plugins", map[string]string{
		"keys":       "['" + ToleratedPluginsAnnotation + "', '" + own + "', 'example.com/tolerate']",
		"namespaces": "['system']",
	})
	pod := func(keys ...string) *corev1.Pod {
		pod := annotated("", func(pod *corev1.Pod) { pod.Annotations = map[string]string{"other": "x"} })
		for _, key := range keys {
			pod.Annotations[key] = "true"
		}
		return pod
	}
	in := func(namespace string, pod *corev1.Pod) *corev1.Pod { pod.Namespace = namespace; return pod }
	with := func(pod *corev1.Pod, key, value string) *corev1.Pod { pod.Annotations[key] = value; return pod }
	binding := func(key string) *corev1.Binding {
		return &corev1.Binding{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Binding"},
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "team", Name: "train", Annotations: map[string]string{key: "true"},
			},
		}
	}
	nodes := []string{"system:nodes"}
	tests := map[string]struct {
		request
		refused string
	}{
		"another annotation":  {request{resource: "pods", object: pod("tolerate.example.com.other/pod", own+"s")}, ""},
		"no annotation":       {request{resource: "pods", object: annotated("")}, ""},
		"a changed value":     {request{resource: "pods", object: pod(own), old: with(pod(), own, "false")}, refused},
		"an empty value":      {request{resource: "pods", object: with(pod(), own, ""), old: pod()}, refused},
		"a removed one":       {request{resource: "pods", object: pod(), old: pod(own)}, ""},
		"one that was there":  {request{resource: "pods/status", object: pod(own), old: pod(own)}, ""},
		"a second form of it": {request{resource: "pods", object: pod(own, own+"/pod"), old: pod(own)}, refused},
		"a template's": {
			request{resource: "pods", object: func() *corev1.Pod { p := pod(own); unnamed(p); return p }()},
			"pod team/train-*: the annotation " + own,
		},
		"in the namespace that is named": {request{resource: "pods", object: in("system", pod(own))}, ""},
		"in one whose name begins so":    {request{resource: "pods", object: in("system-2", pod(own))}, refused},
		"a mirror that a node makes": {
			request{
				user: "system:node:n1", groups: nodes, resource: "pods",
				object: pod(own, corev1.MirrorPodAnnotationKey),
			}, "",
		},
		"a mirror that a tenant makes": {
			request{resource: "pods", object: pod(own, corev1.MirrorPodAnnotationKey)}, refused,
		},
		"a pod that a node changes": {
			request{user: "system:node:n1", groups: nodes, resource: "pods/status", object: pod(own), old: pod()},
			refused,
		},
		"a binding":                   {request{resource: "pods/binding", object: binding(own)}, "pod team/train: the"},
		"a binding by the older path": {request{resource: "bindings", object: binding(own + "/pod")}, refused},
	}
	for _, key := range []string{ToleratedPluginsAnnotation, own} {
		for _, form := range []string{"", "/pod", "/container.main", "/container.a-b-c", "/container.none"} {
			tests["created with "+key+form] = struct {
				request
				refused string
			}{request{resource: "pods", object: pod(key + form)}, key + form + " lets containers start"}
		}
	}
	for _, resource := range []string{"pods", "pods/status", "pods/ephemeralcontainers", "pods/resize"} {
		tests["by "+resource] = struct {
			request
			refused string
		}{request{resource: resource, object: pod("example.com/tolerate"), old: pod()}, refused}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.user == "" {
				test.user = "ada"
			}
			checkRefusal(t, policy, test.request, test.refused)
		})
	}
	if got := readPolicy(t, "kubedevice-missing-plugins").refusal(t, request{
		user: "ada", resource: "pods", object: pod(ToleratedPluginsAnnotation),
	}); !strings.Contains(got, refused) {
		t.Errorf("as it is shipped: refusal %q", got)
	}
}

func TestKubecriIsTakenOffANodeByThoseAloneWhoMayDeleteTheNode(t *testing.T) {
	node := func(labels map[string]string) *corev1.Node {
		return &corev1.Node{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
			ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: labels},
		}
	}
	with := node(map[string]string{"kubedevice.io/devices": "true", "kubedevice.io/node-group": "a", "zone": "z"})
	plain := node(map[string]string{"kubedevice.io/devices": "true", "kubedevice.io/node-group": "a"})
	without := node(map[string]string{"kubedevice.io/node-group": "a"})
	other := node(map[string]string{"kubedevice.io/devices": "true", "kubedevice.io/node-group": "b"})
	fresh := node(map[string]string{"kubedevice.io/devices": "true"})
	nodes := []string{"system:nodes"}
	for name, test := range map[string]struct {
		request
		refused string
	}{
		"an operator keeps the agent from a new node": {
			request{user: "ada", object: plain, old: fresh}, "keeps other agents of kubecri off the node",
		},
		"a new node gets its group": {
			request{user: "system:node:n1", groups: nodes, object: plain, old: fresh}, "",
		},
		"an administrator gives it to a new node": {
			request{user: "ada", object: plain, old: fresh, mayDelete: true}, "",
		},
		"an operator removes a label": {
			request{user: "ada", object: without, old: with}, "node n1: the label kubedevice.io/devices keeps kubecri",
		},
		"an operator removes all": {request{user: "ada", object: node(nil), old: with}, "keeps kubecri"},
		"an operator changes one": {request{user: "ada", object: other, old: with}, "kubedevice.io/node-group"},
		"an operator does so through the status": {
			request{user: "ada", resource: "nodes/status", object: without, old: with}, "keeps kubecri",
		},
		"an operator adds one":           {request{user: "ada", object: with, old: without}, ""},
		"an operator removes another":    {request{user: "ada", object: plain, old: with}, ""},
		"a user who may delete the node": {request{user: "ada", object: without, old: with, mayDelete: true}, ""},
		"the node itself": {
			request{user: "system:node:n1", groups: nodes, object: without, old: with}, "",
		},
		"another node": {
			request{user: "system:node:n2", groups: nodes, object: without, old: with}, "keeps kubecri",
		},
		"somebody with the name of it":    {request{user: "system:node:n1", object: without, old: with}, "keeps"},
		"the node registers with a label": {request{user: "ada", object: with}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if test.resource == "" {
				test.resource = "nodes"
			}
			checkRefusal(t, readPolicy(t, "kubedevice-node-labels"), test.request, test.refused)
		})
	}
}

// As NodeRestriction keeps a node from removing its own taints.
func TestANodeDoesNotChangeTheTaintsOfItsDevices(t *testing.T) {
	node := func(key, value string) *corev1.Node {
		n := &corev1.Node{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "n1"},
		}
		if value != "" {
			n.Annotations = map[string]string{key: value}
		}
		return n
	}
	tainted := node(DeviceTaintsAnnotation, "[]")
	nodes := []string{"system:nodes"}
	for name, test := range map[string]struct {
		request
		refused string
	}{
		"an administrator": {request{user: "ada", object: tainted, old: node("", "")}, ""},
		"the node": {
			request{user: "system:node:n1", groups: nodes, object: node("", ""), old: tainted}, "a node may not change",
		},
		"the node through its status": {
			request{
				user: "system:node:n1", groups: nodes, resource: "nodes/status", object: node("", ""), old: tainted,
			},
			"a node may not change",
		},
		"the node, with something else": {
			request{user: "system:node:n1", groups: nodes, object: func() *corev1.Node {
				n := tainted.DeepCopy()
				n.Annotations[Annotation] = "{}"
				return n
			}(), old: tainted}, "",
		},
		"the node says that its runtime requires kubecri": {
			request{user: "system:node:n1", groups: nodes, object: node(RequiredPluginAnnotation, NRIPlugin),
				old: node("", "")}, "",
		},
		"an operator says that it does not": {
			request{user: "ada", object: node("", ""), old: node(RequiredPluginAnnotation, NRIPlugin)},
			"only the node itself",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if test.resource == "" {
				test.resource = "nodes"
			}
			checkRefusal(t, readPolicy(t, "kubedevice-node-inventories"), test.request, test.refused)
		})
	}
}

func TestAPodMayUseMoreThanItsShareOnlyWhereItsNamespacePermitsIt(t *testing.T) {
	policy := readPolicy(t, "kubedevice-pod-allocations")
	exceeding := func(value string) *corev1.Pod {
		return annotated("", func(pod *corev1.Pod) {
			if value != "" {
				pod.Annotations = map[string]string{OnShareExceededAnnotation: value}
			}
		})
	}
	permits := map[string]string{OnShareExceededAnnotation: OnShareExceededIgnore}
	for name, test := range map[string]struct {
		request
		refused bool
	}{
		"it is ended":      {request{object: exceeding("End")}, false},
		"it is evicted":    {request{object: exceeding("Evict")}, false},
		"it is left alone": {request{object: exceeding("Ignore")}, true},
		"a controller creates it": {
			request{user: "system:serviceaccount:kube-system:job-controller", object: exceeding("Ignore")}, true,
		},
		"the namespace permits it": {request{object: exceeding("Ignore"), namespace: permits}, false},
		"the namespace says something else": {
			request{object: exceeding("Ignore"), namespace: map[string]string{OnShareExceededAnnotation: "End"}}, true,
		},
		"it says so later":              {request{object: exceeding("Ignore"), old: exceeding("End")}, true},
		"it says so later, without one": {request{object: exceeding("Ignore"), old: exceeding("")}, true},
		"it stays as it is":             {request{object: exceeding("Ignore"), old: exceeding("Ignore")}, false},
		"the annotation goes":           {request{object: exceeding(""), old: exceeding("End")}, false},
		"a word in another case":        {request{object: exceeding("ignore")}, true},
	} {
		test.resource = "pods"
		refusal := policy.refusal(t, test.request)
		if refused := refusal != ""; refused != test.refused ||
			refused && !strings.HasPrefix(refusal, "pod team/train: the annotation KubeDevice/OnShareExceeded must") {
			t.Errorf("%s: refusal %q, want %v", name, refusal, test.refused)
		}
	}
}
