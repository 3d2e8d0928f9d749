// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

// held is the kubelet's checkpoint with one device of a pod.
const held = `{"Data":{"PodDeviceEntries":[{"PodUID":"uid-trainer","ContainerName":"main",
"ResourceName":"nvidia.com/gpu","DeviceIDs":{"0":["GPU-1"],"1":["GPU-1"]},"AllocResp":""}],
"RegisteredDevices":{"nvidia.com/gpu":["GPU-0","GPU-1"]}},"Checksum":1}`

// scheduler is a pod of a scheduler with these arguments.
func scheduler(node string, args ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: "kube-scheduler-" + node,
			Labels: map[string]string{"component": "kube-scheduler"},
		},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
			Command: append([]string{"/usr/local/bin/kube-scheduler"}, args...),
		}}},
	}
}

// leads is the lease of the scheduler that leads.
func leads(node string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kube-scheduler"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To(node + "_9f1c")},
	}
}

// required are the policy that demands a scheduler's name, and its binding.
func required(action admissionv1.ValidationAction) []runtime.Object {
	name := metav1.ObjectMeta{Name: requiringPolicy}
	return []runtime.Object{
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: name},
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: name,
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: requiringPolicy, ValidationActions: []admissionv1.ValidationAction{action}}},
	}
}

func TestAPolicyKeepsDevicePodsFromUpstreamsScheduler(t *testing.T) {
	name := metav1.ObjectMeta{Name: namingPolicy}
	for policy, objects := range map[string][]runtime.Object{
		namingPolicy: {
			&admissionv1.MutatingAdmissionPolicy{ObjectMeta: name},
			&admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: name},
		},
		requiringPolicy: required(admissionv1.Deny),
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newKubelet(t, kubeadm)
			m.options.Cluster = fake.NewClientset(append(objects, scheduler("cp-2"), leads("cp-2"))...)
			report := m.enrolment().Enrol(t.Context(), true)
			m.expect(report, Planned)
			at := slices.IndexFunc(report.Facts, func(f Fact) bool { return f.Name == "schedulers" })
			if f := report.Facts[at]; f.Risk != Notice || !strings.Contains(f.Finding, "kube-scheduler-cp-2 (leads)") ||
				!strings.Contains(f.Advice, "policy "+policy+" ") {
				t.Errorf("with the policy %s: %+v", policy, f)
			}
		})
	}
}

func TestBlockingFactsAreNamed(t *testing.T) {
	for name, test := range map[string]struct {
		arrange func(*machine)
		fact    string
		finding string
		advice  string
	}{
		"an init container holds a device of the kubelet": {
			func(m *machine) {
				m.addPod("trainer")
				m.changePod("trainer", func(pod *corev1.Pod) {
					pod.Spec.InitContainers = []corev1.Container{{Name: "setup"}}
				})
				m.write("/var/lib/kubelet/checkpoint", strings.ReplaceAll(held, `"main"`, `"setup"`))
			},
			"holders", "default/trainer (setup)", "drain",
		},
		"a plugin file where pods hold devices of the kubelet": {
			func(m *machine) {
				m.addPod("trainer")
				m.write("/var/lib/kubelet/checkpoint", held)
				m.write("/plugins/a.so", "")
			},
			"holders", "default/trainer (main", "--plugins-for-other-devices",
		},
		"the node is not ready": {
			func(m *machine) { m.setReady(corev1.ConditionFalse) }, "node", "not ready", "repair",
		},
		"the kubelet calls kubecri already": {
			func(m *machine) {
				m.write("/var/lib/kubelet/config.yaml", "containerRuntimeEndpoint: "+kubecriEndpoint+"\n")
				m.active["kubecri.service"] = true
			},
			"endpoint", kubecriEndpoint, "by hand",
		},
		"a configuration for another runtime": {
			func(m *machine) { m.options.Upstream = "unix:///run/crio/crio.sock" },
			"endpoint", runtimeEndpoint, "criUpstream",
		},
		"the runtime does not answer": {
			func(m *machine) {
				m.runtimeErr = errors.New("refused")
			},
			"runtime", "refused", "",
		},
		"CRI-O behind an endpoint that the kubelet does not recognize": {
			func(m *machine) {
				m.version = "cri-o 1.34"
			},
			"runtime", "cri-o", "run/crio/crio.sock",
		},
		"another version of the program": {
			func(m *machine) { m.options.Version = "KubeDevice v2" }, "program", "v1", "v2",
		},
		"a plugin that does not load": {
			func(m *machine) {
				m.write("/plugins/a.so", "")
				m.pluginErr = errors.New("needs GLIBC_2.99")
			},
			"plugin", "GLIBC_2.99", "leave it out",
		},
		"too little disk": {
			func(m *machine) { m.free = 1 << 20 },
			"disk", "1 MiB free", "64 MiB",
		},
		"k3s": {
			func(m *machine) {
				m.options.KubeletUnit = "k3s-kubelet.service"
				m.write("/etc/systemd/system/k3s.service", "")
			},
			"kubelet", "k3s.service", "",
		},
		"a kubelet that does not run": {
			func(m *machine) { m.pid = "0" }, "kubelet", "does not run", "",
		},
		"a flag that no file has": {
			func(m *machine) { m.flags = append(m.flags, "--container-runtime-endpoint=unix:///a.sock") },
			"kubelet", "unix:///a.sock", "",
		},
		"an upstream scheduler that may lead": {
			func(m *machine) {
				m.options.Cluster = fake.NewClientset(scheduler("cp-1", "--devschedpath=/x"), scheduler("cp-2"),
					leads("cp-2"))
			},
			"schedulers", "kube-scheduler-cp-2 (leads)", "replace",
		},
		"a policy against upstream schedulers that is not bound": {
			func(m *machine) {
				m.options.Cluster = fake.NewClientset(scheduler("cp-2"), &admissionv1.MutatingAdmissionPolicy{
					ObjectMeta: metav1.ObjectMeta{Name: namingPolicy}})
			},
			"schedulers", "kube-scheduler-cp-2", "deploy/policies-optional",
		},
		"one that only warns": {
			func(m *machine) {
				m.options.Cluster = fake.NewClientset(append(required(admissionv1.Warn), scheduler("cp-2"))...)
			},
			"schedulers", "kube-scheduler-cp-2", "deploy/policies-optional",
		},
		"schedulers that cannot be seen": {
			func(m *machine) { m.options.SchedulersReplaced = false }, "schedulers", "unknown", "--schedulers-replaced",
		},
		"no scheduler that can be seen": {
			func(m *machine) {
				m.options.SchedulersReplaced = false
				m.options.Cluster = fake.NewClientset(leads("cp-2"))
			},
			"schedulers", "unknown", "--schedulers-replaced",
		},
		"no policies": {
			func(m *machine) {
				m.options.Cluster = fake.NewClientset(scheduler("cp-1", "--devschedpath=/x"))
				m.options.Policies = []string{"p"}
			},
			"policies", "missing: p", "deploy/policies",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newKubelet(t, kubeadm)
				test.arrange(m)
				before := m.snapshot()
				report := m.enrol()
				m.expect(report, Refused)
				at := slices.IndexFunc(report.Facts, func(f Fact) bool { return f.Risk == Blocks })
				if at < 0 {
					t.Fatalf("nothing blocks: %+v", report)
				}
				if f := report.Facts[at]; f.Name != test.fact || !strings.Contains(f.Finding, test.finding) ||
					!strings.Contains(f.Advice, test.advice) || f.Advice == "" {
					t.Errorf("%+v, want %q with %q, %q", f, test.fact, test.finding, test.advice)
				}
				if after := m.snapshot(); after != before {
					t.Errorf("it changes\n%sto\n%s", before, after)
				}
			})
		})
	}
}

func TestNoticesAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newKubelet(t, kubeadm)
		m.write("/var/lib/kubelet/checkpoint", held) // the pod is gone
		m.write("/plugins/a.so", "")
		m.options.Cluster = fake.NewClientset([]runtime.Object{
			scheduler("cp-1", "--device-seal-key=/x"), scheduler("cp-2", "--devschedpath=/x"), leads("cp-1"),
		}...)
		m.options.SchedulersReplaced = false
		m.cdiErr = errors.New("CDI is off")
		m.clockSkew = -time.Hour
		operator := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "gpu-operator", Name: "plugin", UID: "o",
				Labels: map[string]string{"app.kubernetes.io/managed-by": "gpu-operator"},
			},
			Spec: corev1.PodSpec{NodeName: nodeName, Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: kubeletDirectory + "/"}}}}},
		}
		if err := m.api.Tracker().Add(operator); err != nil {
			t.Fatal(err)
		}
		report := m.enrolment().Enrol(t.Context(), true)
		m.expect(report, Planned)
		var text bytes.Buffer
		if err := report.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"nvidia.com/gpu is the kubelet's", "devicePlugin.enabled=false", "CDI is off", "1h0m0s from",
			"synchronize", "no pod holds a device", "(leads)",
			"/var/lib/kubelet/config.yaml, /var/lib/kubelet/instance-config.yaml", "restart kubelet.service",
			`node "node-1": planned`,
		} {
			if !strings.Contains(strings.Join(strings.Fields(text.String()), " "), want) {
				t.Errorf("it lacks %q:\n%s", want, &text)
			}
		}
		text.Reset()
		if err := report.WriteJSON(&text); err != nil {
			t.Fatal(err)
		}
		var read Report
		if err := json.Unmarshal(text.Bytes(), &read); err != nil || len(read.Facts) != len(report.Facts) ||
			read.Outcome != Planned || len(read.Steps) != 4 {
			t.Errorf("%v\n%s", err, &text)
		}
	})
}

func TestLeaveNamesThePodsThatOnlyOurSchedulerServes(t *testing.T) {
	const selector = "spec.nodeName=,spec.schedulerName=kubedevice-scheduler,status.phase=Pending"
	waiting := func(count int) kubernetes.Interface {
		api := fake.NewClientset()
		api.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			list := &corev1.PodList{}
			if fields := action.(clienttesting.ListAction).GetListRestrictions().Fields.String(); fields != selector {
				return true, nil, fmt.Errorf("pods with %s are listed", fields)
			}
			for i := range count {
				list.Items = append(list.Items, corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: fmt.Sprintf("train-%02d", i)},
				})
			}
			return true, list, nil
		})
		return api
	}
	broken := fake.NewClientset()
	broken.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("the server is on fire")
	})
	for name, test := range map[string]struct {
		cluster kubernetes.Interface
		risk    Risk
		finding string
	}{
		"none":         {waiting(0), None, "no pod waits under the scheduler name kubedevice-scheduler"},
		"two":          {waiting(2), Notice, "wait team/train-00, team/train-01"},
		"many":         {waiting(12), Notice, "team/train-09, and 2 more"},
		"unknown":      {nil, Notice, "unknown: the kubelet's identity"},
		"not readable": {broken, Notice, "unknown: the server is on fire"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newKubelet(t, kubeadm)
				m.expect(m.enrol(), Done)
				m.options.Cluster = test.cluster
				report := m.leave()
				m.expect(report, Done)
				if f := report.Facts[0]; f.Risk != test.risk || !strings.Contains(f.Finding, test.finding) {
					t.Errorf("%+v; want %s, %q", f, test.risk, test.finding)
				}
			})
		})
	}
}
