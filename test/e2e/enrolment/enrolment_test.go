// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/enrolment"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/kube"
	"github.com/kubedevice/kubedevice/test/observe"
)

// fpga is the resource of the plugin that registers with the kubelet.
const fpga corev1.ResourceName = "vendor.example/fpga"

func TestANodeIsEnrolledAndLeavesAsItWas(t *testing.T) {
	s := begin(t)
	before := s.files()
	s.startPlugin()
	checkHolder := s.runHolder()

	s.report(enrolment.Planned, "enrol", "--dry-run")
	if diff := cmp.Diff(before, s.files()); diff != "" {
		t.Errorf("--dry-run changes (-before +after):\n%s", diff)
	}
	s.report(enrolment.Done, "enrol")
	s.report(enrolment.Unchanged, "enrol")
	if node := s.apiNode(); node.Labels[enrolment.Label] != "true" || node.Spec.Unschedulable {
		t.Errorf("labels %v, unschedulable %t", node.Labels, node.Spec.Unschedulable)
	}
	s.checkBystander()
	checkHolder()
	if endpoint := s.upgradedEndpoint(); endpoint != cluster.Endpoint {
		t.Errorf("an upgrade by kubeadm makes the kubelet call %s", endpoint)
	}

	s.runTrainer()
	s.checkTrainerKeepsTheNode()
	// So is named what only KubeDevice's scheduler will ever schedule.
	waiting := clustertest.On("nowhere", clustertest.IdlePod(s.namespace, "waiting", nil))
	waiting.Spec.SchedulerName = "kubedevice-scheduler"
	clustertest.CreatePod(s.ctx, t, shared.Client, waiting)
	report := s.report(enrolment.Done, "leave", "--drain", "--cluster-kubeconfig="+shared.SchedulerKubeconfig())
	if found := report.Facts[0]; found.Risk != enrolment.Notice ||
		!strings.HasSuffix(found.Finding, " wait "+s.namespace+"/waiting") {
		t.Errorf("pods that wait for the scheduler: %+v", found)
	}
	s.report(enrolment.Unchanged, "leave")
	if diff := cmp.Diff(before, s.files()); diff != "" {
		t.Errorf("what is left (-before +after):\n%s", diff)
	}
	s.checkLeft()
	s.checkBystander()
	checkHolder()
}

// The runtime's configuration has NRI on and its default validator, so nothing but kubecri starts.
func TestANodeIsEnrolledByNRIAndNoProgramIsRestarted(t *testing.T) {
	s := begin(t)
	before, kubelets, runtime := s.files(), s.kubeletStarts(), s.node.Containerd.PID()
	s.startPlugin()
	checkHolder := s.runHolder()
	checkUntouched := func() {
		t.Helper()
		s.checkBystander()
		checkHolder()
		if now := s.kubeletStarts(); now != kubelets {
			t.Errorf("the kubelet was started %d times and is now %d", kubelets, now)
		}
		if now := s.node.Containerd.PID(); now != runtime {
			t.Errorf("the runtime was process %d and is %d", runtime, now)
		}
		for path, content := range s.files() {
			if was, known := before[path]; known && was != content {
				t.Errorf("%s was\n%s\nand is\n%s", path, was, content)
			}
		}
	}

	s.report(enrolment.Planned, "enrol", "--mode=nri", "--dry-run")
	if diff := cmp.Diff(before, s.files()); diff != "" {
		t.Errorf("--dry-run changes (-before +after):\n%s", diff)
	}
	s.report(enrolment.Done, "enrol", "--mode=nri")
	s.report(enrolment.Unchanged, "enrol", "--mode=nri")
	if node := s.apiNode(); node.Labels[enrolment.Label] != "true" || node.Spec.Unschedulable {
		t.Errorf("labels %v, unschedulable %t", node.Labels, node.Spec.Unschedulable)
	}
	s.checkRegistered()
	checkUntouched()
	s.runTrainer()
	s.checkTrainerKeepsTheNode()

	s.report(enrolment.Done, "leave", "--drain")
	s.report(enrolment.Unchanged, "leave")
	if diff := cmp.Diff(before, s.files()); diff != "" {
		t.Errorf("what is left (-before +after):\n%s", diff)
	}
	s.checkLeft()
	checkUntouched()
}

func TestAKubeletThatDoesNotComeUpIsBackWithItsEndpoint(t *testing.T) {
	s := begin(t)
	before := s.files()
	s.must(s.node.BreakKubelet(true))
	t.Cleanup(func() { s.must(s.node.BreakKubelet(false)) })
	began := time.Now()
	report := s.report(enrolment.Undone, "enrol")
	t.Logf("it took %v", time.Since(began))
	if !strings.Contains(report.Reason, "has not reported node") {
		t.Errorf("reason: %s", report.Reason)
	}
	if diff := cmp.Diff(before, s.files()); diff != "" {
		t.Errorf("what is left (-before +after):\n%s", diff)
	}
	s.checkLeft()
	s.checkBystander()
}

func TestAnEnrolmentThatIsKilledIsTakenBack(t *testing.T) {
	s := begin(t)
	before := s.files()
	for line := 0; s.killAt(line); line++ {
		// Every other one goes on first.
		if line%2 == 1 {
			s.report(enrolment.Done, "enrol")
		}
		s.report(enrolment.Done, "leave")
		if diff := cmp.Diff(before, s.files()); diff != "" {
			t.Fatalf("killed at line %d, what is left (-before +after):\n%s", line, diff)
		}
		s.checkLeft()
	}
	s.report(enrolment.Done, "leave")
	s.checkLeft()
	s.checkBystander()
}

// startPlugin starts a device plugin for the kubelet, and waits until the kubelet has its devices.
func (s *story) startPlugin() {
	s.Helper()
	s.startPluginOf(fpga, "a", "b")
}

// startPluginOf starts a device plugin of a resource for the kubelet, and waits until the kubelet
// has its devices. stop ends it, as does the end of the test.
func (s *story) startPluginOf(resource corev1.ResourceName, ids ...string) (stop func()) {
	s.Helper()
	name := filepath.Base(string(resource))
	devices := filepath.Join(dir, name+"s.json")
	var list []*pluginapi.Device
	for _, id := range ids {
		list = append(list, &pluginapi.Device{ID: id, Health: pluginapi.Healthy})
	}
	content, err := json.Marshal(list)
	s.must(err)
	s.must(os.WriteFile(devices, content, 0o644))
	plugin := s.node.NewComponent(name+"-plugin", cluster.Program{
		Path: filepath.Join(dir, "plugin"),
		Args: []string{"--resource=" + string(resource), "--devices=" + devices, "--journal=" + devices + ".journal"},
	})
	s.must(plugin.Start())
	stop = sync.OnceFunc(func() { s.must(plugin.Kill9(context.WithoutCancel(s.ctx))) })
	s.Cleanup(stop)
	s.awaitCount(resource, int64(len(ids)))
	return stop
}

// awaitCount waits until so many of an extended resource are allocatable on the node.
func (s *story) awaitCount(resource corev1.ResourceName, want int64) {
	s.Helper()
	what := fmt.Sprintf("to have %d of %s", want, resource)
	_, err := shared.Client.AwaitNode(s.ctx, s.node.Name, what, func(node *corev1.Node) bool {
		count := node.Status.Allocatable[resource]
		return count.Value() == want
	})
	s.must(err)
}

// runHolder runs a pod that holds a device of the kubelet, and returns what fails the test if the
// pod has noticed anything.
func (s *story) runHolder() (check func()) {
	s.Helper()
	holder := clustertest.RunPod(s.ctx, s, shared.Client,
		clustertest.IdlePod(s.namespace, "holder", map[corev1.ResourceName]int64{fpga: 1}))
	return func() {
		s.Helper()
		now := clustertest.AwaitPod(s.ctx, s, shared.Client, holder, "to be ready still", kube.Ready)
		if diff := cmp.Diff(holder.Status.ContainerStatuses, now.Status.ContainerStatuses); diff != "" {
			s.Errorf("the container that holds a device noticed something (-before +after):\n%s", diff)
		}
	}
}

// runTrainer runs a pod whose devices the scheduler chooses.
func (s *story) runTrainer() {
	s.Helper()
	observer, err := observe.New(s.ctx, shared)
	s.must(err)
	trainer := clustertest.RunPod(s.ctx, s, shared.Client,
		clustertest.IdlePod(s.namespace, "trainer", map[corev1.ResourceName]int64{observe.Resource: 2}))
	seen, err := observer.Observe(s.ctx, trainer, "main")
	s.must(err)
	s.must(seen.Agree())
}

// checkTrainerKeepsTheNode fails the test unless that pod is in the way back.
func (s *story) checkTrainerKeepsTheNode() {
	s.Helper()
	if report := s.report(enrolment.Refused, "leave"); !strings.Contains(report.Reason, s.namespace+"/trainer") {
		s.Errorf("reason: %s", report.Reason)
	}
}

// checkRegistered fails the test unless the runtime has registered kubecri.
func (s *story) checkRegistered() {
	s.Helper()
	answer, err := s.node.Get(s.ctx, "/readyz?verbose")
	s.must(err)
	if !strings.Contains(answer, "[+]nri ok") {
		s.Errorf("kubecri is not registered: %s", answer)
	}
}

// kubeletStarts is how often systemd has started the kubelet.
func (s *story) kubeletStarts() int {
	s.Helper()
	starts, err := s.node.KubeletStarts()
	s.must(err)
	return len(starts)
}

// checkLeft fails the test unless the node is ready without kubecri.
func (s *story) checkLeft() {
	s.Helper()
	node := s.apiNode()
	if node.Labels[enrolment.Label] != "" || node.Annotations[deviceinfo.Annotation] != "" || node.Spec.Unschedulable {
		s.Errorf("the node has labels %v, annotations %v, unschedulable %t", node.Labels, node.Annotations,
			node.Spec.Unschedulable)
	}
	if _, err := s.node.KubecriPID(s.ctx); err == nil {
		s.Error("kubecri still serves the kubelet")
	}
	if _, err := s.node.Get(s.ctx, "/healthz"); err == nil {
		s.Error("kubecri still runs")
	}
	// The kubelet serves.
	pod := clustertest.IdlePod(s.namespace, "after", nil)
	clustertest.DeletePod(s.ctx, s, shared.Client, clustertest.RunPod(s.ctx, s, shared.Client, pod))
}
