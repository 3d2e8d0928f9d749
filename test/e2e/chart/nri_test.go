// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/observe"
)

// soon is how long it may take from the command to a pod that runs with its devices.
const soon = 2 * time.Minute

// values are those of the installation: the simulated GPUs, and where the nodes have their things.
func values() map[string]any {
	return map[string]any{
		"nodeGroups": []any{map[string]any{
			"name": "simulated", "nodeSelector": map[string]any{chosen: "true"}, "plugins": []any{"simgpu"},
			"env": []any{map[string]any{"name": cluster.InventoryVariable, "value": inventory}},
		}},
		"node":      map[string]any{"kubeconfig": kubeconfig, "nriSocket": "/run/nri/nri.sock"},
		"scheduler": map[string]any{"placement": "any"}, // no node is a control plane
	}
}

func TestHelmInstallsIntoAClusterThatKnowsNothingAndLeavesNothing(t *testing.T) {
	installOperatorCRDs(t)
	plugWidgetsIn(t)
	s := begin(t)
	s.checkMonitoringManifests()
	s.refuseWhatCannotWork()

	began := time.Now()
	s.helm(s.install(s.withWidgets(values()))...)
	s.label(`"true"`)
	s.awaitPolicy()
	pair := s.run(s.gpuPod("pair", 2))
	if took := time.Since(began); took > soon {
		s.Errorf("a pod ran with its devices %v after the command, want %v", took, soon)
	} else {
		s.Logf("a pod ran with its devices %v after the command", took)
	}
	s.checkPair(pair)
	s.checkFit(s.gpuPod("fits", 2))
	s.checkWidgets()
	s.checkBystander()
	s.checkKubelets()

	// Upgrade and rollback: the key stays, and no container notices.
	key := s.key()
	s.helm(append([]string{
		"upgrade", "kubedevice", root + "/deploy/chart", "--reuse-values", "--set=node.verbosity=4",
		"--set=scheduler.replicas=1", "--wait", "--timeout=2m",
	}, monitoring...)...)
	s.checkMonitored(true)
	s.checkPair(s.run(s.gpuPod("upgraded", 2)))
	s.helm("rollback", "kubedevice", "1", "--wait", "--timeout=2m")
	s.checkMonitored(false)
	s.checkPair(s.run(s.gpuPod("rolled-back", 2)))
	if s.key() != key {
		t.Error("another key signs")
	}
	s.checkRunsOn(pair)

	s.loseTheKey()
	if clustertest.Full() {
		s.refuse("pre-upgrade", "upgrade", "kubedevice", root+"/deploy/chart", "--reuse-values",
			"--set=image.tag=missing", "--timeout=5s")
		s.helm("rollback", "kubedevice", "1", "--wait", "--timeout=2m")
	}
	s.checkBystander()
	s.checkRunsOn(pair)

	// Pods that hold devices are in the way, and are named.
	s.refuse(s.namespace+"/pair", "uninstall", "kubedevice", "--timeout=1m")
	s.checkRunsOn(pair)
	s.awaitEnrolled(2)
	for _, name := range []string{"pair", "fits", "upgraded", "rolled-back"} {
		clustertest.DeletePod(s.ctx, s, shared.Client, s.pod(name))
	}
	s.helm("uninstall", "kubedevice", "--wait", "--timeout=2m")
	s.label("null")
	s.checkBystander()
	s.checkKubelets()
	s.checkNothingIsLeft()
}

// A node is given back when its label goes, once no pod holds a device of it, and with drain, Helm
// has the pods evicted.
func TestANodeComesAndGoesWithItsLabel(t *testing.T) {
	clustertest.OnlyInFull(t, "uninstalling with drain has a test with the proxy")
	s := begin(t)
	s.helm(s.install(values())...)
	s.label(`"true"`)
	s.awaitPolicy()
	pod := s.run(s.gpuPod("pod", 1))
	s.awaitEnrolled(2)
	s.label("null")
	s.awaitEnrolled(1) // the other one
	s.checkRunsOn(pod)
	clustertest.DeletePod(s.ctx, s, shared.Client, pod)
	s.awaitEnrolled(0)

	s.label(`"true"`)
	s.awaitEnrolled(2)
	s.run(s.gpuPod("evicted", 1))
	controlled := s.deploy(s.gpuPod("controlled", 1))
	s.helm("upgrade", "kubedevice", root+"/deploy/chart", "--reuse-values", "--set=uninstall.drain=true")
	s.helm("uninstall", "kubedevice", "--wait", "--timeout=2m")
	s.label("null")
	s.checkEvicted("evicted")
	s.handedOver(controlled)
	s.checkBystander()
	s.checkKubelets()
	s.checkNothingIsLeft()
}

// deploy has a Deployment of one pod, and waits until the pod runs.
func (s *story) deploy(pod *corev1.Pod) *appsv1.Deployment {
	s.Helper()
	labels := map[string]string{"app": pod.Name}
	deployment, err := shared.Client.AppsV1().Deployments(s.namespace).Create(s.ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec},
		},
	}, metav1.CreateOptions{})
	s.must(err)
	s.kubectl("--namespace="+s.namespace, "rollout", "status", "deployment/"+pod.Name, "--timeout=1m")
	return deployment
}

// handedOver waits until the cluster's own scheduler has the pod of a Deployment, and deletes that.
func (s *story) handedOver(deployment *appsv1.Deployment) {
	s.Helper()
	selector := metav1.FormatLabelSelector(deployment.Spec.Selector)
	clustertest.Await(s.ctx, s, "a pod of "+deployment.Name+" that the cluster's own scheduler has", func() bool {
		pods, err := shared.Client.CoreV1().Pods(s.namespace).List(s.ctx, metav1.ListOptions{LabelSelector: selector})
		s.must(err)
		return len(pods.Items) == 1 && pods.Items[0].Spec.SchedulerName == corev1.DefaultSchedulerName
	})
	s.kubectl("--namespace="+s.namespace, "delete", "deployment", deployment.Name, "--cascade=foreground")
}

// awaitPolicy waits until the API server has taken notice of the policy that gives device pods the
// scheduler's name.
func (s *story) awaitPolicy() {
	s.Helper()
	clustertest.Await(s.ctx, s, "the API server to take notice of the policy", func() bool {
		admitted, err := shared.Client.CoreV1().Pods(s.namespace).Create(s.ctx, s.gpuPod("admitted", 1),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		s.must(err)
		return admitted.Spec.SchedulerName == "kubedevice-scheduler"
	})
}

// refuseWhatCannotWork tries values that are wrong, and images that are missing. Nothing is left.
func (s *story) refuseWhatCannotWork() {
	s.Helper()
	s.refuse("'/mode': value must be one of", append(s.install(values()), "--set=mode=proxy")...)
	s.refuse("no node has the label node-role.kubernetes.io/control-plane",
		append(s.install(values()), "--set=scheduler.placement=control-plane")...)
	missing := append(s.install(values()), "--set=image.tag=missing", "--timeout=5s")
	s.refuse("pre-install", missing...)
	if printed, err := s.tryHelm("uninstall", "kubedevice", "--no-hooks"); err != nil {
		s.Fatalf("%v\n%s", err, printed)
	}
	s.refuse("Secret "+system+"/kubedevice-seal-key does not exist",
		append(s.install(values()), "--set=seals.keys=existing")...)
	if printed, err := s.tryHelm("uninstall", "kubedevice", "--no-hooks"); err != nil {
		s.Fatalf("%v\n%s", err, printed)
	}
	s.checkBystander()
	s.checkNothingIsLeft()
}

// loseTheKey deletes the key. An upgrade says so, and changes nothing.
func (s *story) loseTheKey() {
	s.Helper()
	secrets := shared.Client.CoreV1().Secrets(system)
	kept, err := secrets.Get(s.ctx, "kubedevice-seal-key", metav1.GetOptions{})
	s.must(err)
	s.must(secrets.Delete(s.ctx, kept.Name, metav1.DeleteOptions{}))
	s.refuse("the key is lost", "upgrade", "kubedevice", root+"/deploy/chart", "--reuse-values", "--timeout=1m")
	kept.ResourceVersion, kept.UID = "", ""
	_, err = secrets.Create(s.ctx, kept, metav1.CreateOptions{})
	s.must(err)
}

// key is the text of the key that signs.
func (s *story) key() string {
	s.Helper()
	secret, err := shared.Client.CoreV1().Secrets(system).Get(s.ctx, "kubedevice-seal-key", metav1.GetOptions{})
	s.must(err)
	return string(secret.Data["private.pem"])
}

func (s *story) pod(name string) *corev1.Pod {
	s.Helper()
	pod, err := shared.Client.CoreV1().Pods(s.namespace).Get(s.ctx, name, metav1.GetOptions{})
	s.must(err)
	return pod
}

// checkPair makes sure that a container sees the two devices that its pod was allocated, and that
// these are of one NVLink pair.
func (s *story) checkPair(pod *corev1.Pod) {
	s.Helper()
	observer, err := observe.New(s.ctx, shared)
	s.must(err)
	seen, err := observer.Observe(s.ctx, pod, "main")
	s.must(err)
	if err := seen.Agree(); err != nil {
		s.Error(err)
	}
	var groups []string
	for _, path := range seen.Paths {
		group, _, _ := strings.Cut(path, "/gpu/")
		groups = append(groups, group)
	}
	slices.Sort(groups)
	if len(seen.Visible) != 2 || len(slices.Compact(groups)) != 1 {
		s.Errorf("pod %s has the devices %q of %q, want an NVLink pair", pod.Name, seen.Visible, seen.Paths)
	}
}

// checkRunsOn makes sure that a pod's container was not restarted.
func (s *story) checkRunsOn(before *corev1.Pod) {
	s.Helper()
	now, was := s.pod(before.Name).Status.ContainerStatuses[0], before.Status.ContainerStatuses[0]
	if now.ContainerID != was.ContainerID || now.State.Running == nil {
		s.Errorf("pod %s was %+v and is %+v", before.Name, was, now)
	}
}
