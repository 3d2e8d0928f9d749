// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/test/await"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/dradriver"
	"github.com/kubedevice/kubedevice/test/image"
	"github.com/kubedevice/kubedevice/test/kube"
	"github.com/kubedevice/kubedevice/test/observe"
)

const (
	gpus = corev1.ResourceName("nvidia.com/gpu")
	// atOnce is how many pods there are at a time: more than there are devices for.
	atOnce = 20
	// killEvery is how many pods end between two programs that are killed.
	killEvery = 4
	// timeout is how long a pod may take from its creation to its end, kills included.
	timeout = 4 * time.Minute
)

func uuid(value string) map[resourcev1.QualifiedName]string {
	return map[resourcev1.QualifiedName]string{"uuid": value}
}

// churn is pods of both ways that come and go in a namespace.
type churn struct {
	*testing.T
	*rand.Rand
	namespace string
	drivers   map[int]func(context.Context) error // what stops the driver of a node
	found     map[string]bool                     // devices of claims that containers have had, and GPUs
}

// Each container says which devices of claims it has: the kernel's word, next to the API server's.
func TestPodsOfBothWaysGetEachDeviceOnceThoughProgramsAreKilled(t *testing.T) {
	const seed = 1
	ctx, cancel := context.WithTimeout(t.Context(), timeout*time.Duration(1+*pods/atOnce))
	defer cancel()
	c := &churn{
		T: t, Rand: rand.New(rand.NewPCG(seed, 0)), namespace: clustertest.Namespace(t, shared.Client),
		drivers: map[int]func(context.Context) error{}, found: map[string]bool{},
	}
	for _, node := range []int{onlyClaims, both} {
		c.startDriver(ctx, node)
	}
	t.Cleanup(func() {
		for _, stop := range c.drivers {
			if err := stop(context.WithoutCancel(ctx)); err != nil {
				t.Error(err)
			}
		}
	})
	for count := range int64(2) {
		c.createTemplate(ctx, count+1)
	}
	doubles := clustertest.WatchForDoubles(ctx, shared.Client, c.namespace)
	created, ended, killed := 0, 0, 0
	for ended < *pods {
		for created < *pods && created-ended < atOnce {
			clustertest.CreatePod(ctx, t, shared.Client, c.newPod(created))
			created++
		}
		if err := await.Success(ctx, "a pod to end", func(ctx context.Context) error {
			now := c.endPods(ctx)
			if now == 0 {
				return fmt.Errorf("%d of %d pods have ended", ended, created)
			}
			ended += now
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if ended/killEvery > killed {
			c.killOne(ctx, killed)
			killed++
		}
	}
	if err := doubles(); err != nil {
		t.Error(err)
	}
	t.Logf("%d pods have ended, %d programs were killed, and %d devices used", ended, killed, len(c.found))
	if err := await.Success(ctx, "all claims to be gone", func(ctx context.Context) error {
		claims, err := shared.Client.ResourceV1().ResourceClaims(c.namespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(claims.Items) > 0 {
			err = fmt.Errorf("%d claims are left, such as %s", len(claims.Items), claims.Items[0].Name)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	for i := range own { // at the end nothing is lost: as many pods as the third node has devices of its own
		pod := c.claimant(fmt.Sprint("last-", i), 1)
		clustertest.RunPod(ctx, t, shared.Client, clustertest.On(shared.Nodes[both].Name, pod))
	}
}

func (c *churn) startDriver(ctx context.Context, node int) {
	c.Helper()
	stop, err := dradriver.Start(ctx, shared.Client, shared.Nodes[node], driverOf(node))
	if err != nil {
		c.Fatal(err)
	}
	c.drivers[node] = stop
}

// templateName returns the name of the template of claims for so many devices.
func templateName(count int64) string { return fmt.Sprint("devices-", count) }

func (c *churn) createTemplate(ctx context.Context, count int64) {
	c.Helper()
	template := &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: templateName(count)},
		Spec: resourcev1.ResourceClaimTemplateSpec{Spec: resourcev1.ResourceClaimSpec{
			Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
				Name: "devices", Exactly: &resourcev1.ExactDeviceRequest{
					DeviceClassName: driverOf(onlyClaims).Name, Count: count,
					AllocationMode: resourcev1.DeviceAllocationModeExactCount,
				},
			}}},
		}},
	}
	if _, err := shared.Client.ResourceV1().ResourceClaimTemplates(c.namespace).Create(ctx, template,
		metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
}

// says is the command of a pod that says which devices of claims it has, and ends.
func says(seconds int) []string {
	return []string{"sh", "-c", fmt.Sprintf("env | grep ^%s; sleep %d", dradriver.VariablePrefix, seconds)}
}

// newPod returns a pod that requests devices by limits, by a claim, or both.
func (c *churn) newPod(number int) *corev1.Pod {
	name, count := fmt.Sprintf("p%03d", number), int64(1+c.IntN(2))
	pod := clustertest.IdlePod(c.namespace, name, nil)
	pod.Spec.Containers[0].Command, pod.Spec.Containers[0].Args = says(1+c.IntN(4)), nil
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	way := c.IntN(5)
	if way < 3 {
		pod.Spec.Containers[0].Resources = clustertest.Limits(map[corev1.ResourceName]int64{gpus: count})
	}
	if way > 1 {
		useTemplate(pod, count)
	}
	return pod
}

// claimant returns a pod that stays, and requests devices by a claim.
func (c *churn) claimant(name string, count int64) *corev1.Pod {
	pod := kube.NewPod(name, image.Busybox, clustertest.Idle...)
	pod.Namespace = c.namespace
	useTemplate(pod, count)
	return pod
}

func useTemplate(pod *corev1.Pod, count int64) {
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{
		Name: "devices", ResourceClaimTemplateName: ptr.To(templateName(count)),
	}}
	pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "devices"}}
}

// endPods checks all pods, and deletes those that have ended. It returns how many these are.
func (c *churn) endPods(ctx context.Context) (ended int) {
	c.Helper()
	claims, err := shared.Client.ResourceV1().ResourceClaims(c.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0 // the API server may be slow for a moment
	}
	list, err := shared.Client.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0
	}
	c.checkHolders(ctx, claims.Items, list.Items)
	for i := range list.Items {
		pod := &list.Items[i]
		switch pod.Status.Phase {
		case corev1.PodFailed:
			c.Fatalf("a pod has failed: %s", shared.Client.Describe(ctx, pod))
		case corev1.PodSucceeded:
			c.checkContainer(ctx, pod, claims.Items)
			if err := shared.Client.DeletePod(ctx, pod); err != nil && !apierrors.IsNotFound(err) {
				c.Fatal(err)
			}
			ended++
		}
	}
	return ended
}

// checkHolders makes sure that no GPU of the third node is allocated to a claim and to a pod.
// Claims were read first: one of these may have ended before the pod was bound.
func (c *churn) checkHolders(ctx context.Context, claims []resourcev1.ResourceClaim, list []corev1.Pod) {
	c.Helper()
	claimed := map[string]*resourcev1.ResourceClaim{}
	for i := range claims {
		for _, id := range gpusOfClaim(&claims[i]) {
			if other := claimed[id]; other != nil {
				c.Errorf("%s is allocated to the claims %s and %s", id, other.Name, claims[i].Name)
			}
			claimed[id] = &claims[i]
		}
	}
	for i := range list {
		pod := &list[i]
		if pod.Spec.NodeName != shared.Nodes[both].Name || pod.Status.Phase == corev1.PodSucceeded {
			continue
		}
		seen, err := new(observe.Observer).Choice(pod, "main")
		if err != nil {
			c.Error(err)
			continue
		}
		for _, id := range seen.Chosen {
			c.found["gpu "+pod.Spec.NodeName+" "+id] = true
			claim := claimed[id]
			if claim == nil {
				continue
			}
			now, err := shared.Client.ResourceV1().ResourceClaims(c.namespace).Get(ctx, claim.Name, metav1.GetOptions{})
			if err == nil && slices.Contains(gpusOfClaim(now), id) {
				c.Errorf("%s is allocated to claim %s and to pod %s", id, claim.Name, pod.Name)
			}
		}
	}
}

// gpusOfClaim returns the GPUs of the third node that a claim has.
func gpusOfClaim(claim *resourcev1.ResourceClaim) (ids []string) {
	if claim.Status.Allocation == nil {
		return nil
	}
	for _, result := range claim.Status.Allocation.Devices.Results {
		for i := range perNode {
			if result.Pool == shared.Nodes[both].Name && result.Device == fmt.Sprint("dev-", i) {
				ids = append(ids, fmt.Sprint("gpu-", i))
			}
		}
	}
	return ids
}

// checkContainer makes sure that the container of a pod has had exactly what its claim has.
func (c *churn) checkContainer(ctx context.Context, pod *corev1.Pod, claims []resourcev1.ResourceClaim) {
	c.Helper()
	var want []string
	for _, status := range pod.Status.ResourceClaimStatuses {
		at := slices.IndexFunc(claims, func(claim resourcev1.ResourceClaim) bool {
			return claim.Name == ptr.Deref(status.ResourceClaimName, "") && claim.Status.Allocation != nil
		})
		if at < 0 {
			return // it is deallocated already
		}
		for _, result := range claims[at].Status.Allocation.Devices.Results {
			want = append(want, dradriver.Device{Name: result.Device}.Variable())
			c.found["device "+result.Pool+" "+result.Device] = true
		}
	}
	said, err := shared.Client.Logs(ctx, pod, "main")
	if err != nil {
		c.Logf("the log of pod %s: %v", pod.Name, err) // its kubelet may be away
		return
	}
	got := strings.Fields(said)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		c.Errorf("the container of pod %s has %q, and its claim %q", pod.Name, got, want)
	}
}

// killOne kills one program, each in its turn, or has a driver leave and come back.
func (c *churn) killOne(ctx context.Context, turn int) {
	c.Helper()
	programs := []*cluster.Component{
		shared.Scheduler, shared.Nodes[both].Kubecri, shared.Nodes[onlyClaims].Kubelet, shared.Scheduler,
		shared.Nodes[both].Kubelet, shared.Nodes[onlyGPUs].Kubecri,
	}
	if at := turn % (len(programs) + 1); at < len(programs) {
		if err := programs[at].Restart(ctx); err != nil {
			c.Fatal(err)
		}
		return
	}
	if err := c.drivers[both](ctx); err != nil {
		c.Fatal(err)
	}
	c.startDriver(ctx, both)
}
