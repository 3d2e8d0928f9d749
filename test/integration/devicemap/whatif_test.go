// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package devicemap

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/test/browser"
	"github.com/kubedevice/kubedevice/test/integration/controlplane"
	"github.com/kubedevice/kubedevice/test/kube"
)

// startScheduler starts the scheduler that "make" has built, until the test ends, and returns where
// it answers. The reader of the map may ask it.
func startScheduler(ctx context.Context, t *testing.T) (url string) {
	t.Helper()
	built := filepath.Join(root, "_output")
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(built, "plugins", "scheduler", "simgpu.so"),
		filepath.Join(dir, "simgpu.so")); err != nil {
		t.Fatal(err)
	}
	port := func() string {
		port, err := controlplane.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		return strconv.Itoa(port)
	}
	kubeconfig := kubeconfig(t, "system:kube-scheduler")
	devices := port()
	command := exec.Command(filepath.Join(built, "kube-scheduler"), "--kubeconfig="+kubeconfig,
		"--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig, "--leader-elect=false",
		"--bind-address=127.0.0.1", "--secure-port="+port(), "--devices-secure-port="+devices, "--devschedpath="+dir)
	log := &strings.Builder{}
	command.Stderr = log
	if err := command.Start(); err != nil {
		t.Fatalf("%v: build it first (make binaries plugins)", err)
	}
	t.Cleanup(func() {
		command.Process.Kill() //nolint:errcheck // it may have ended
		command.Wait()         //nolint:errcheck // killed
		if t.Failed() {
			t.Logf("the scheduler said\n%.5000s", log)
		}
	})
	mayAsk(ctx, t, "alice")
	return "https://127.0.0.1:" + devices
}

// mayAsk gives a user the role of deploy/rbac for the scheduler's API.
func mayAsk(ctx context.Context, t *testing.T, user string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "deploy", "rbac", "kubedevice-devices-viewer.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.ClusterRole{}
	if err := yaml.UnmarshalStrict(text, role); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	if _, err := server.Admin.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Admin.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitRight(ctx, t, user, authorizationv1.ResourceAttributes{
		Verb: "get", Group: coordinationv1.GroupName, Resource: "leases",
	})
}

// ready makes a node one that pods fit on.
func ready(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	node, err := server.Admin.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status.Allocatable = corev1.ResourceList{
		"cpu": apiresource.MustParse("64"), "memory": apiresource.MustParse("1Ti"),
		"pods":           apiresource.MustParse("110"),
		"nvidia.com/gpu": *apiresource.NewQuantity(perNode, apiresource.DecimalSI),
	}
	node.Status.Capacity = node.Status.Allocatable
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if node, err = server.Admin.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	node.Spec.Taints = nil // of nodes that are new
	if _, err := server.Admin.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// A device fails and a pod waits for it. The scheduler, asked by clicks, says what would let the
// pod run; that is done, and so it is.
func TestAnAnswerOfTheSchedulerLetsAPodRunThatWaits(t *testing.T) {
	ctx := begin(t)
	var nodes []*corev1.Node
	var pods []*corev1.Pod
	for i := range 24 {
		name := fmt.Sprintf("gpu-%d", i+1)
		nodes = append(nodes, newNode(t, name))
		pods = append(pods, holding(t, teams[i%3], work[i%6]+"-"+name, name, 0, 0, 1, 2, 3))
		if i > 0 { // half of the first is free
			pods = append(pods, holding(t, teams[(i+1)%3], work[(i+2)%6]+"-"+name+"-b", name, 0, 4, 5, 6, 7))
		}
	}
	nodes[0].Annotations = newNode(t, "gpu-1", 6).Annotations // the device fails
	create(ctx, t, nodes, pods)
	start(ctx, t, pods)
	for _, node := range nodes {
		ready(ctx, t, node.Name)
	}
	scheduler := startScheduler(ctx, t)
	pod, err := server.Admin.CreatePod(ctx, newPod("vision", "pretrain-0", 4))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.Admin.AwaitPod(ctx, pod, "to wait with a reason", kube.Unschedulable); err != nil {
		t.Fatal(err)
	}
	url, _ := serve(ctx, t, "--scheduler="+scheduler)
	p := open(ctx, t, url, 1200, 916)

	waiting := `[...document.querySelectorAll('.waiting button')].find(
		b => b.innerText.startsWith("vision/pretrain-0"))`
	p.Await("the pod that waits", waiting)
	p.Click(waiting)
	p.Await("why it waits", `document.querySelector('.details')?.innerText.includes("It fits none of 24 nodes.") &&
		document.querySelector('.details .reasons').innerText.includes("fewer than 4 free GPUs") &&
		!document.querySelector('.selection > .reason')`) // which is the same, in short
	p.Await("the smallest change", `[...document.querySelectorAll('.details .changes button')].some(
		b => b.innerText.startsWith("end "))`)

	choose := func(text string) string {
		return fmt.Sprintf(`[...document.querySelectorAll('.changes button')].find(b => b.innerText == %q)`, text)
	}
	p.Click(`document.querySelector('[role=listitem][aria-label^="gpu-1,"] .name')`)
	p.Await("the questions about a node", choose("gpu-1 were cordoned?"))
	one := choose("there were one more node like gpu-1?")
	p.Do("ask from the keyboard", chromedp.Evaluate[chromedp.Void](one+".focus()"), chromedp.KeyEvent(kb.Enter))
	p.Await("that the new node would take it", `document.querySelector('.whatif .verdict')?.innerText.startsWith(
		"It would go to the new node, with gpu-") && !document.querySelector('.tile.lit')`)
	p.Await("the focus at the answer", `document.activeElement.matches('.whatif h2')`)
	p.Do("close it", chromedp.KeyEvent(kb.Escape))
	p.Await("the focus at what asked, in a panel that is still open", `!document.querySelector('.whatif') &&
		document.activeElement == `+one)

	p.Click(tile("gpu-1", 0))
	p.Await("the questions about a device", choose("gpu/gpu-0 of gpu-1 were cordoned?"))
	p.Click(choose("gpu/gpu-0 of gpu-1 were cordoned?"))
	p.Await("that it would still wait, and why", `document.querySelector('.whatif .verdict')?.innerText ==
		"pretrain-0 would still wait." && document.querySelector('.whatif .reasons').innerText.includes("free GPUs")`)
	p.Click(`document.querySelector('.whatif .close')`)

	holder := pods[0]
	p.Click(`document.querySelector('.details .pod')`)
	ended := fmt.Sprintf("%s/%s ended?", holder.Namespace, holder.Name)
	p.Await("the question about the pod", choose(ended))
	p.Click(choose(ended))
	p.Await("where it would go", `document.querySelector('.whatif .verdict')?.innerText.startsWith(
		"It would go to gpu-1, with gpu-")`)
	p.Await("its devices, lit", `document.querySelectorAll('.tile.lit').length == 4`)
	picture(p, "map-whatif")
	lit := browser.Value[[]string](p, `[...document.querySelectorAll('.tile.lit')].map(
		e => e.ariaLabel.match(/^gpu (gpu-[0-9])/)[1]).sort()`)

	now := *metav1.NewDeleteOptions(0)
	if err := server.Admin.CoreV1().Pods(holder.Namespace).Delete(ctx, holder.Name, now); err != nil {
		t.Fatal(err)
	}
	if pod, err = server.Admin.AwaitPod(ctx, pod, "to be scheduled", kube.Scheduled); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(lit, held(t, pod)); diff != "" || pod.Spec.NodeName != "gpu-1" {
		t.Errorf("it is on %s (-lit +allocated): %s", pod.Spec.NodeName, diff)
	}
	p.Await("that it waits no longer", `!`+waiting+` && !document.querySelector('.whatif')`)
}

// held returns the names of the GPUs that a pod's annotation says it has, in order.
func held(t *testing.T, pod *corev1.Pod) (names []string) {
	t.Helper()
	allocation, err := deviceinfo.PodAllocation(pod)
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range allocation.RunningContainers["main"].AllocateFrom {
		segments := strings.Split(string(from), "/")
		names = append(names, segments[len(segments)-2])
	}
	slices.Sort(names)
	return slices.Compact(names)
}
