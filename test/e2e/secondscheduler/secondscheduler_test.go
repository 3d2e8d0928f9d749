// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package secondscheduler

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubectldevices "github.com/kubedevice/kubedevice/pkg/kubectl/devices"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
	"github.com/kubedevice/kubedevice/test/observe"
)

const (
	system = "kubedevice-system"    // the second scheduler's namespace
	name   = "kubedevice-scheduler" // its Deployment, its lease, and the name that it serves
	gpus   = 8                      // of the node
)

// story is the cluster with what the test knows of it.
type story struct {
	*testing.T
	ctx       context.Context
	node      *cluster.Node
	namespace string
	observer  *observe.Observer
}

// Our scheduler comes into a cluster whose own scheduler stays as it is.
func TestASecondSchedulerRunsFromItsImageNextToUpstreams(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	s := &story{T: t, ctx: ctx, node: shared.Nodes[0]}
	s.install()
	s.namespace = clustertest.Namespace(t, shared.Client)
	var err error
	s.observer, err = observe.New(ctx, shared)
	s.must(err)

	pair := s.run(clustertest.IdlePod(s.namespace, "pair", map[corev1.ResourceName]int64{observe.Resource: 2}))
	s.expectDevices(pair, 2)
	if pair.Spec.SchedulerName != name {
		t.Errorf("the policy leaves the device pod to the scheduler %s", pair.Spec.SchedulerName)
	}
	plain := s.run(clustertest.IdlePod(s.namespace, "plain", nil))
	if plain.Spec.SchedulerName != corev1.DefaultSchedulerName {
		t.Errorf("the plain pod has the scheduler %s", plain.Spec.SchedulerName)
	}

	s.expectAnswers()

	// Another replica takes over.
	s.deleteLeader()
	s.expectDevices(s.run(clustertest.IdlePod(s.namespace, "later",
		map[corev1.ResourceName]int64{observe.Resource: 1})), 1)

	for _, pod := range []string{"pair", "plain", "later"} {
		clustertest.DeletePod(ctx, t, shared.Client, s.pod(pod))
	}
	s.loseAtTheKubelet()
	s.uninstall()
}

func (s *story) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *story) run(pod *corev1.Pod) *corev1.Pod {
	s.Helper()
	return clustertest.RunPod(s.ctx, s, shared.Client, pod)
}

func (s *story) pod(name string) *corev1.Pod {
	s.Helper()
	pod, err := shared.Client.CoreV1().Pods(s.namespace).Get(s.ctx, name, metav1.GetOptions{})
	s.must(err)
	return pod
}

// expectDevices makes sure that a container sees the devices that its pod was allocated, so many.
func (s *story) expectDevices(pod *corev1.Pod, count int) {
	s.Helper()
	seen, err := s.observer.Observe(s.ctx, pod, "main")
	s.must(err)
	if err := seen.Agree(); err != nil {
		s.Error(err)
	}
	if len(seen.Visible) != count {
		s.Errorf("pod %s sees the devices %q, want %d", pod.Name, seen.Visible, count)
	}
}

func (s *story) kubectl(arguments ...string) {
	s.Helper()
	_, err := shared.Kubectl(s.ctx, arguments...)
	s.must(err)
}

// install does what docs/deploy/second-scheduler.md says.
func (s *story) install() {
	s.Helper()
	deploy := filepath.Join(root, "deploy")
	archive := filepath.Join(s.TempDir(), "image.tar")
	if out, err := exec.CommandContext(s.ctx, "tar", "-C", layout(), "-cf", archive, ".").CombinedOutput(); err != nil {
		s.Fatalf("%v: %s", err, out)
	}
	s.must(s.node.ImportImages(s.ctx, archive))

	s.kubectl("apply", "--filename="+filepath.Join(deploy, "second-scheduler", "namespace.yaml"))
	keys, err := s.node.RunKubecri(s.ctx, "seal-keys", "list", filepath.Dir(shared.SealKeys()), "--output=yaml",
		"--namespace="+system)
	s.must(err)
	apply := shared.KubectlCommand(s.ctx, "apply", "--filename=-")
	apply.Stdin = strings.NewReader(keys)
	if printed, err := apply.CombinedOutput(); err != nil {
		s.Fatalf("%v: %s", err, printed)
	}
	s.kubectl("label", "node", s.node.Name, "node-role.kubernetes.io/control-plane=")
	s.kubectl("apply", "--kustomize="+filepath.Join(deploy, "second-scheduler"))
	s.kubectl("--namespace="+system, "rollout", "status", "deployment/"+name, "--timeout=2m")

	s.kubectl("apply", "--filename="+filepath.Join(deploy, "policies-optional", "kubedevice-scheduler-name.yaml"))
	pod := clustertest.IdlePod(metav1.NamespaceDefault, "admitted", map[corev1.ResourceName]int64{observe.Resource: 1})
	clustertest.Await(s.ctx, s, "the API server to take notice of the policy", func() bool {
		admitted, err := shared.Client.CoreV1().Pods(pod.Namespace).Create(s.ctx, pod,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		s.must(err)
		return admitted.Spec.SchedulerName == name
	})
}

// expectAnswers asks both replicas through a port-forward, as users do.
func (s *story) expectAnswers() {
	s.Helper()
	var schedulers kubectldevices.SchedulerList
	ask := exec.CommandContext(s.ctx, filepath.Join(root, "_output", "kubectl-device"), "schedulers", "--output=json",
		"--kubeconfig="+shared.Kubeconfig())
	text, err := ask.Output()
	s.must(err)
	s.must(json.Unmarshal(text, &schedulers))
	leaders := 0
	for _, scheduler := range schedulers.Items {
		if scheduler.Leads {
			leaders++
		}
		if scheduler.Problem != "" {
			s.Errorf("%s does not answer: %s", scheduler.Name, scheduler.Problem)
		}
	}
	if len(schedulers.Items) != 2 || leaders != 1 {
		s.Errorf("kubectl device schedulers shows %s", text)
	}
}

// uninstall takes the scheduler away again, with its policies and its namespace.
func (s *story) uninstall() {
	s.Helper()
	deploy := filepath.Join(root, "deploy")
	s.kubectl("delete", "--filename="+filepath.Join(deploy, "policies-optional", "kubedevice-scheduler-name.yaml"))
	s.kubectl("delete", "--kustomize="+filepath.Join(deploy, "second-scheduler"))
}

// deleteLeader deletes the pod of the scheduler that leads.
func (s *story) deleteLeader() {
	s.Helper()
	lease, err := shared.Client.CoordinationV1().Leases(system).Get(s.ctx, name, metav1.GetOptions{})
	s.must(err)
	if lease.Spec.HolderIdentity == nil {
		s.Fatal("no scheduler leads")
	}
	leader, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_") // the pod's name is its host's
	s.must(shared.Client.CoreV1().Pods(system).Delete(s.ctx, leader, metav1.DeleteOptions{}))
}

// loseAtTheKubelet has a device pod lose the node's CPU to a pod that another scheduler has bound
// at the same time. The kubelet is away meanwhile, so that both are bound when it decides; the
// older one wins.
func (s *story) loseAtTheKubelet() {
	s.Helper()
	node, err := shared.Client.CoreV1().Nodes().Get(s.ctx, s.node.Name, metav1.GetOptions{})
	s.must(err)
	most := resource.NewMilliQuantity(node.Status.Allocatable.Cpu().MilliValue()*6/10, resource.DecimalSI)
	cpu := corev1.ResourceList{corev1.ResourceCPU: *most}

	winner := clustertest.IdlePod(s.namespace, "winner", nil)
	winner.Spec.SchedulerName, winner.Spec.Containers[0].Resources.Requests = "absent", cpu
	winner = clustertest.CreatePod(s.ctx, s, shared.Client, winner)
	s.must(s.node.Kubelet.Kill9(s.ctx))
	// which is in whole seconds
	clustertest.Await(s.ctx, s, "the winner to be older than the loser", func() bool {
		return time.Now().After(winner.CreationTimestamp.Add(time.Second))
	})
	template := clustertest.IdlePod(s.namespace, "loser", map[corev1.ResourceName]int64{observe.Resource: 1})
	template.Spec.Containers[0].Resources.Requests = cpu
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "loser", Namespace: s.namespace},
		Spec:       batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: template.Spec}},
	}
	_, err = shared.Client.BatchV1().Jobs(s.namespace).Create(s.ctx, job, metav1.CreateOptions{})
	s.must(err)
	first := s.awaitJobPod("the Job's pod to be bound", func(pod *corev1.Pod) bool { return pod.Spec.NodeName != "" })
	s.must(shared.Client.CoreV1().Pods(s.namespace).Bind(s.ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: winner.Name, UID: winner.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: s.node.Name},
	}, metav1.CreateOptions{}))
	s.must(s.node.Kubelet.Start())

	loser := clustertest.AwaitPod(s.ctx, s, shared.Client, first, "to lose", func(pod *corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodFailed
	})
	if loser.Status.Reason != "OutOfcpu" {
		s.Errorf("the device pod failed for %s: %s", loser.Status.Reason, loser.Status.Message)
	}

	// It holds nothing, though it is still there: another pod gets all GPUs, also on the node.
	all := s.run(clustertest.IdlePod(s.namespace, "all", map[corev1.ResourceName]int64{observe.Resource: gpus}))
	s.expectDevices(all, gpus)
	clustertest.DeletePod(s.ctx, s, shared.Client, all)

	// Its controller makes another one, which gets its GPU once there is CPU.
	second := s.awaitJobPod("the Job's next pod", func(pod *corev1.Pod) bool { return pod.UID != first.UID })
	clustertest.DeletePod(s.ctx, s, shared.Client, winner)
	s.expectDevices(clustertest.AwaitPod(s.ctx, s, shared.Client, second, "to be ready", kube.Ready), 1)
}

// awaitJobPod waits for a pod of the Job for which is holds. what completes "wait for".
func (s *story) awaitJobPod(what string, is func(*corev1.Pod) bool) (found *corev1.Pod) {
	s.Helper()
	clustertest.Await(s.ctx, s, what, func() bool {
		list, err := shared.Client.CoreV1().Pods(s.namespace).List(s.ctx,
			metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=loser"})
		s.must(err)
		at := slices.IndexFunc(list.Items, func(pod corev1.Pod) bool { return is(&pod) })
		if at >= 0 {
			found = &list.Items[at]
		}
		return at >= 0
	})
	return found
}
