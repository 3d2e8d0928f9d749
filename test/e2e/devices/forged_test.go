// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	sdk "github.com/kubedevice/kubedevice/pkg/sdk/types"
	"github.com/kubedevice/kubedevice/test/kube"
)

// forger is a user who may edit what is in one namespace, and write pods' status, bindings and nodes besides.
const forger = "mallory"

// heist is what a forger finds: a namespace to work in, and a pod with a device that the forger would like to have.
type heist struct {
	forger    *kube.Client
	namespace string
	// victim runs in another namespace and holds card on node.
	victim *corev1.Pod
	node   string
	card   sdk.ResourceName
	// own is a pod of the forger's with a device on the same node, waiting one without a node.
	own, waiting *corev1.Pod
}

func newHeist(ctx context.Context, t *testing.T) *heist {
	t.Helper()
	h := &heist{namespace: newNamespace(t), node: shared.Nodes[0].Name}
	h.forger = newForger(ctx, t, h.namespace)
	h.victim = runPod(ctx, t, on(h.node, gpuPod(newNamespace(t), "victim", 1)))
	h.card = sdk.ResourceName(look(ctx, t, h.victim, "main").Paths[0])
	h.own = runPod(ctx, t, on(h.node, gpuPod(h.namespace, "own", 1)))
	waiting := gpuPod(h.namespace, "waiting", 1)
	waiting.Spec.SchedulerName = nobody
	h.waiting = create(ctx, t, waiting)
	return h
}

// loot is the annotation with which a pod would have the victim's device.
func (h *heist) loot(t *testing.T, pod string) string { return allocation(t, pod, h.node, h.card) }

// pod returns a pod of the forger's that asks for a device and carries an annotation.
func (h *heist) pod(name, annotation string) *corev1.Pod {
	pod := on(h.node, gpuPod(h.namespace, name, 1))
	pod.Annotations = map[string]string{deviceinfo.Annotation: annotation}
	return pod
}

// annotate returns a merge patch that sets the annotation, or removes it if value is nil.
func annotate(t *testing.T, value any) []byte {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{deviceinfo.Annotation: value}}})
	if err != nil {
		t.Fatal(err)
	}
	return patch
}

// patchPod patches one of the forger's pods.
func (h *heist) patchPod(ctx context.Context, pod *corev1.Pod, patch []byte, subresources ...string) error {
	_, err := h.forger.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}, subresources...)
	return err
}

func (h *heist) createPod(ctx context.Context, pod *corev1.Pod) error {
	_, err := h.forger.CreatePod(ctx, pod)
	return err
}

func patchNode(ctx context.Context, client *kube.Client, node string, patch []byte, subresources ...string) error {
	_, err := client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{}, subresources...)
	return err
}

func TestForgedAnnotationsAreRefusedOnEveryPath(t *testing.T) {
	ctx := begin(t)
	h := newHeist(ctx, t)
	const (
		mayWrite  = "which only the device scheduler may write"
		mayChange = "only the device scheduler may change it"
		maySend   = "only the device scheduler may send the annotation"
		isNode    = "only the node itself may change its annotation"
	)
	// spell forges an allocation at creation whose words are spelled in some way.
	spell := func(word, as string) func(ctx context.Context, t *testing.T) error {
		return func(ctx context.Context, t *testing.T) error {
			return h.createPod(ctx, h.pod("spelled", strings.ReplaceAll(h.loot(t, "spelled"), word, as)))
		}
	}
	attacks := map[string]struct {
		try  func(ctx context.Context, t *testing.T) error
		want string
	}{
		"an allocation when the pod is created": {func(ctx context.Context, t *testing.T) error {
			return h.createPod(ctx, h.pod("forged", h.loot(t, "forged")))
		}, mayWrite},
		"an allocation when the pod is created, with a node": {func(ctx context.Context, t *testing.T) error {
			pod := h.pod("placed", h.loot(t, "placed"))
			pod.Spec.NodeName = h.node
			return h.createPod(ctx, pod)
		}, mayWrite},
		"an allocation on a pod that waits": {func(ctx context.Context, t *testing.T) error {
			return h.patchPod(ctx, h.waiting, annotate(t, h.loot(t, h.waiting.Name)))
		}, mayWrite},
		"an allocation through the status of a pod that waits": {func(ctx context.Context, t *testing.T) error {
			return h.patchPod(ctx, h.waiting, annotate(t, h.loot(t, h.waiting.Name)), "status")
		}, mayWrite},
		"another allocation on a pod that runs": {func(ctx context.Context, t *testing.T) error {
			return h.patchPod(ctx, h.own, annotate(t, h.loot(t, h.own.Name)))
		}, mayWrite},
		"another allocation through the status of a pod that runs": {func(ctx context.Context, t *testing.T) error {
			return h.patchPod(ctx, h.own, annotate(t, h.loot(t, h.own.Name)), "status")
		}, mayWrite},
		"a request in place of the allocation of a pod that runs": {func(ctx context.Context, t *testing.T) error {
			return h.patchPod(ctx, h.own, annotate(t, `{"requests":{"gpu/gpu-generate-topology":1}}`))
		}, mayChange},
		"no annotation any more on a pod that runs": {func(ctx context.Context, t *testing.T) error {
			return h.patchPod(ctx, h.own, annotate(t, nil))
		}, mayChange},
		"no annotation any more through the status of a pod that runs": {func(ctx context.Context, t *testing.T) error {
			return h.patchPod(ctx, h.own, annotate(t, nil), "status")
		}, mayChange},
		"a binding with an allocation": {func(ctx context.Context, t *testing.T) error {
			return bind(ctx, h.forger, h.waiting, h.node, h.loot(t, h.waiting.Name))
		}, maySend},
		"an escaped letter in a word": {spell("allocatefrom", `\u0061llocatefrom`), mayWrite},
		"escaped letters in all words": {func(ctx context.Context, t *testing.T) error {
			return h.createPod(ctx, h.pod("escaped", escape(h.loot(t, "escaped"))))
		}, mayWrite},
		"a word in capitals":         {spell("allocatefrom", "ALLOCATEFROM"), mayWrite},
		"words in mixed case":        {spell("devrequests", "DevRequests"), mayWrite},
		"a letter that folds to one": {spell("devrequests", "devrequestſ"), mayWrite},
		"a node's inventory, by a user": {func(ctx context.Context, t *testing.T) error {
			return patchNode(ctx, h.forger, h.node, annotate(t, `{}`))
		}, isNode},
		"a node's inventory through its status, by a user": {func(ctx context.Context, t *testing.T) error {
			return patchNode(ctx, h.forger, h.node, annotate(t, `{}`), "status")
		}, isNode},
		"no inventory of a node any more, by a user": {func(ctx context.Context, t *testing.T) error {
			return patchNode(ctx, h.forger, h.node, annotate(t, nil))
		}, isNode},
		"a node's inventory, by another node": {func(ctx context.Context, t *testing.T) error {
			other, err := shared.Client.As("system:node:"+shared.Nodes[1].Name, "system:nodes")
			if err != nil {
				t.Fatal(err)
			}
			return patchNode(ctx, other, h.node, annotate(t, `{}`), "status")
		}, "is not allowed to modify node"},
		"a node's inventory, by who has a node's name only": {func(ctx context.Context, t *testing.T) error {
			name, err := shared.Client.As("system:node:"+h.node, forger)
			if err != nil {
				t.Fatal(err)
			}
			return patchNode(ctx, name, h.node, annotate(t, `{}`))
		}, isNode},
	}
	for name, attack := range attacks {
		t.Run(name, func(t *testing.T) {
			err := attack.try(begin(t), t)
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), attack.want) {
				t.Errorf("got %v, want a refusal that says %q", err, attack.want)
			}
		})
	}
	h.expectNothingStolen(ctx, t)
}

// escape writes every letter of a JSON text's words as a number.
func escape(text string) string {
	for _, word := range []string{"devrequests", "allocatefrom", "nodename"} {
		escaped := strings.Builder{}
		for _, letter := range word {
			escaped.WriteString(`\u00` + string("0123456789abcdef"[letter/16]) + string("0123456789abcdef"[letter%16]))
		}
		text = strings.ReplaceAll(text, word, escaped.String())
	}
	return text
}

func TestWhatThePoliciesLetThroughMovesNoDevice(t *testing.T) {
	ctx := begin(t)
	h := newHeist(ctx, t)
	for name, annotations := range map[string]map[string]string{
		"wide letters in the words":           {deviceinfo.Annotation: strings.NewReplacer("devrequests", "ｄevrequests", "allocatefrom", "ａllocatefrom", "nodename", "ｎodename").Replace(h.loot(t, "let-through"))},
		"the key in another case":             {strings.ToLower(deviceinfo.Annotation): h.loot(t, "let-through")},
		"the key of the node's own record":    {"KubeDevice/Grant": h.loot(t, "let-through")},
		"a pod that says it is a static one":  {"kubernetes.io/config.source": "file"},
		"a request that names nothing chosen": {deviceinfo.Annotation: `{"podname":"victim","requests":{}}`},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := begin(t)
			pod := h.pod("let-through", "")
			pod.Annotations = annotations
			created, err := h.forger.CreatePod(ctx, pod)
			if err != nil {
				t.Fatal(err)
			}
			created = await(ctx, t, created, "to be ready", kube.Ready)

			sight := look(ctx, t, created, "main")
			if len(sight.Chosen) != 1 || sight.Paths[0] == string(h.card) {
				t.Errorf("the pod was given %q, want one device other than the victim's %s", sight.Paths, h.card)
			}
			if err := shared.Client.DeletePod(ctx, created); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Run("writing a running pod where annotations do not count", func(t *testing.T) {
		ctx := begin(t)
		pod, err := h.forger.CoreV1().Pods(h.namespace).Get(ctx, h.own.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pod.Annotations[deviceinfo.Annotation] = h.loot(t, pod.Name)
		pod, err = h.forger.CoreV1().Pods(h.namespace).UpdateEphemeralContainers(ctx, pod.Name, pod, metav1.UpdateOptions{})
		if err == nil && pod.Annotations[deviceinfo.Annotation] != h.own.Annotations[deviceinfo.Annotation] {
			t.Errorf("the annotation has become %s", pod.Annotations[deviceinfo.Annotation])
		}
	})
	h.expectNothingStolen(ctx, t)
}

// expectNothingStolen fails the test unless all pods and the node are as they were, also in a new container of the forger's.
func (h *heist) expectNothingStolen(ctx context.Context, t *testing.T) {
	t.Helper()
	before := look(ctx, t, h.own, "main")
	own := restartContainer(ctx, t, h.own)
	if diff := cmp.Diff(before.Sees, look(ctx, t, own, "main").Sees); diff != "" {
		t.Errorf("devices of the forger's pod (-before +after):\n%s", diff)
	}
	victim := await(ctx, t, h.victim, "to be ready still", kube.Ready)
	if diff := cmp.Diff(h.victim.Annotations, victim.Annotations); diff != "" {
		t.Errorf("annotations of the victim (-before +after):\n%s", diff)
	}
	if got := look(ctx, t, victim, "main").Paths[0]; got != string(h.card) {
		t.Errorf("the victim holds %s, want %s still", got, h.card)
	}
	awaitGPUs(ctx, t, h.node, perNode)
}

// newForger lets forger do in the namespace what an editor may, and write pods' status and bindings there, and nodes everywhere, until the
// test ends.
func newForger(ctx context.Context, t *testing.T, namespace string) *kube.Client {
	t.Helper()
	rbac := shared.Client.RbacV1()
	subjects := []rbacv1.Subject{
		{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: forger},
		{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: forger},
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "forger-"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes", "nodes/status"}, Verbs: []string{"get", "patch", "update"}},
		{APIGroups: []string{""}, Resources: []string{"pods/status", "pods/ephemeralcontainers"}, Verbs: []string{"patch", "update"}},
		{APIGroups: []string{""}, Resources: []string{"pods/binding", "bindings"}, Verbs: []string{"create"}},
	}}
	role, err := rbac.ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	everywhere := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
	}
	if _, err := rbac.ClusterRoleBindings().Create(ctx, everywhere, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		if err := rbac.ClusterRoleBindings().Delete(ctx, role.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		if err := rbac.ClusterRoles().Delete(ctx, role.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	here := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "edit"}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
	}
	if _, err := rbac.RoleBindings(namespace).Create(ctx, here, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	client, err := shared.Client.As(forger)
	if err != nil {
		t.Fatal(err)
	}
	awaitRight(ctx, t, client, authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "create", Resource: "pods"})
	awaitRight(ctx, t, client, authorizationv1.ResourceAttributes{Verb: "patch", Resource: "nodes", Subresource: "status"})
	return client
}

// awaitRight waits until the API server has noticed that a user may do something.
func awaitRight(ctx context.Context, t *testing.T, client *kube.Client, attributes authorizationv1.ResourceAttributes) {
	t.Helper()
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &attributes}}
	for {
		answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if answer.Status.Allowed {
			return
		}
		pause(ctx, t, "the right to "+attributes.Verb+" "+attributes.Resource)
	}
}
