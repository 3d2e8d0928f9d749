// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubedevice/kubedevice/pkg/node/nri"
)

func TestAnEnrolmentInModeNRIDoesNotRestartTheKubelet(t *testing.T) {
	files := map[string]map[string]string{"a flag that no file has": kubeadm}
	for name, one := range kubelets {
		files[name] = one
	}
	for name, files := range files {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newKubelet(t, files)
				if name == "a flag that no file has" {
					m.flags = append(m.flags, "--container-runtime-endpoint="+runtimeEndpoint)
				}
				m.options.Mode = ModeNRI
				before, endpoint := m.snapshot(), m.endpoint()
				planned := m.enrolment().Enrol(t.Context(), true)
				m.expect(planned, Planned)
				if diff := cmp.Diff(before, m.snapshot()); diff != "" {
					t.Errorf("--dry-run changes (-before +after):\n%s", diff)
				}
				for _, step := range planned.Steps {
					for _, action := range step.Actions {
						if strings.Contains(action, "kubelet.service") || strings.Contains(action, socketUnit) {
							t.Errorf("step %s: %s", step.Name, action)
						}
					}
				}

				m.expect(m.enrol(), Done)
				if m.endpoint() != endpoint || m.restarts != 0 || !m.active[serviceUnit] || m.active[socketUnit] {
					t.Errorf("the kubelet was restarted %d times, calls %s; units %v", m.restarts, m.endpoint(),
						m.active)
				}
				after := m.snapshot()
				if !strings.Contains(after, Label) || strings.Contains(after, socketUnit) {
					t.Errorf("the node lacks the label, or has the socket:\n%s", after)
				}
				m.expect(m.enrol(), Unchanged)
				if diff := cmp.Diff(after, m.snapshot()); diff != "" {
					t.Errorf("the second enrolment changes (-before +after):\n%s", diff)
				}

				m.write("/var/lib/kubedevice/grants", "kubecri's")
				m.expect(m.leave(), Done)
				if diff := cmp.Diff(before, m.snapshot()); diff != "" {
					t.Errorf("what is left (-before +after):\n%s", diff)
				}
				if m.restarts != 0 {
					t.Errorf("the kubelet was restarted %d times", m.restarts)
				}
			})
		})
	}
}

func TestAKubecriThatIsNotRegisteredIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newKubelet(t, kubeadm)
		m.options.Mode, m.dead = ModeNRI, true
		before := m.snapshot()
		report := m.enrol()
		m.expect(report, Undone)
		if !strings.Contains(report.Reason, "[-]nri: kubecri is not registered; see journalctl") {
			t.Errorf("the reason: %s", report.Reason)
		}
		if diff := cmp.Diff(before, m.snapshot()); diff != "" {
			t.Errorf("what is left (-before +after):\n%s", diff)
		}
	})
}

// To change the mode, the node leaves first, so that the record of one mode is never read
// while containers of the other run.
func TestANodeGoesFromOneModeToTheOther(t *testing.T) {
	for _, modes := range [][2]Mode{{ModeCRI, ModeNRI}, {ModeNRI, ModeCRI}} {
		t.Run(string(modes[0])+" to "+string(modes[1]), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newKubelet(t, kubeadm)
				m.addPod("holder")
				before := m.snapshot()
				m.options.Mode = modes[0]
				m.expect(m.enrol(), Done)
				after := m.snapshot()
				m.granted = []string{"uid-holder"}

				m.options.Mode = modes[1]
				report := m.enrol()
				m.expect(report, Refused)
				if !strings.Contains(report.Reason, "enrolled in mode "+string(modes[0])) ||
					!strings.Contains(report.Reason, "kubecri leave") {
					t.Errorf("the reason: %s", report.Reason)
				}
				if diff := cmp.Diff(after, m.snapshot()); diff != "" {
					t.Errorf("the refusal changes (-before +after):\n%s", diff)
				}
				// The configuration file says the new mode already.
				m.expect(m.leave(), Refused)
				m.expect(m.enrolment().Leave(t.Context(), false, true), Done)
				if diff := cmp.Diff([]string{"holder"}, m.evicted); diff != "" {
					t.Errorf("evicted (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(before, m.snapshot()); diff != "" {
					t.Errorf("what is left of the old mode (-before +after):\n%s", diff)
				}
				m.expect(m.enrol(), Done)
				if calls := m.endpoint() == kubecriEndpoint; calls != (modes[1] == ModeCRI) {
					t.Errorf("in mode %s the kubelet calls %s", modes[1], m.endpoint())
				}
			})
		})
	}
}

func TestFactsAboutNRI(t *testing.T) {
	settings := func(found nri.Settings, err error) func(*machine) {
		return func(m *machine) {
			m.validator, m.validatorErr = found, err
		}
	}
	for name, test := range map[string]struct {
		mode    Mode
		arrange func(*machine)
		fact    string
		risk    Risk
		finding string
		advice  string
	}{
		"a proxy needs none": {
			ModeCRI, func(m *machine) { m.options.NRISocket = "/run/none.sock" }, "NRI", None, "does not need it", "",
		},
		"a proxy that is not to register": {
			ModeCRI, func(m *machine) { m.options.NRISocket = "" }, "NRI", None, "nriSocket is empty", "",
		},
		"a proxy whose containers can require it": {ModeCRI, nil, "validator", None, "on, by /etc/containerd", ""},
		"a plugin where there is no NRI": {
			ModeNRI, func(m *machine) { m.options.NRISocket = "/run/none.sock" }, "NRI", Blocks, "/run/none.sock",
			"mode: cri",
		},
		"a plugin that the runtime would not register": {
			ModeNRI, func(m *machine) {
				m.nriErr = errors.New("too old")
			}, "NRI", Blocks, "too old", "mode: cri",
		},
		"a plugin that it registers": {ModeNRI, nil, "NRI", None, "containerd v2.4.2 registers plugins", ""},
		"a plugin whose health is not served": {
			ModeNRI, func(m *machine) { m.options.MetricsAddress = "" }, "health", Blocks, "metricsBindAddress",
			"enrol sees",
		},
		"a socket that a package has installed": {
			ModeNRI, func(m *machine) { m.write("/etc/systemd/system/"+socketUnit, "") }, "units", Notice, socketUnit,
			"mask --now",
		},
		"a validator that is off": {
			ModeNRI, settings(nri.Settings{File: "/c"}, nil), "validator", Notice, "off, by /c", "restart the runtime",
		},
		"a validator of which nothing is known": {
			ModeNRI, settings(nri.Settings{}, errors.New("not to be seen")), "validator", Notice,
			"unknown: not to be seen", "/readyz",
		},
		"a validator that could require kubecri of all": {
			ModeNRI, settings(nri.Settings{Enabled: true, File: "/c"}, nil), "validator", Notice, "on, by /c",
			`required_plugins = ["kubedevice"] there. The runtime then creates none meanwhile, static pods included, ` +
				`those of a control plane, too, and a kubecri that itself runs as a pod`,
		},
		"a validator that excepts pods with an annotation": {
			ModeNRI, settings(nri.Settings{Enabled: true, File: "/c", Tolerated: "t.example.com"}, nil), "validator",
			Notice, "on, by /c", "except those of pods with the annotation t.example.com",
		},
		"a validator that requires kubecri of all": {
			ModeCRI, settings(nri.Settings{Enabled: true, Required: []string{"kubedevice"}}, nil), "validator", Notice,
			"all containers require kubedevice", "static pods",
		},
		"one that requires it of all but pods with an annotation": {
			ModeCRI, settings(nri.Settings{Enabled: true, Required: []string{"kubedevice"}, Tolerated: "t.example.com"},
				nil), "validator", Notice, "all containers require kubedevice", "with the annotation t.example.com",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newKubelet(t, kubeadm)
			m.options.Mode = test.mode
			if test.arrange != nil {
				test.arrange(m)
			}
			report := m.enrolment().Enrol(t.Context(), true)
			at := slices.IndexFunc(report.Facts, func(f Fact) bool { return f.Name == test.fact })
			if at < 0 {
				t.Fatalf("no fact %s in %+v", test.fact, report.Facts)
			}
			f := report.Facts[at]
			if f.Risk != test.risk || !strings.Contains(f.Finding, test.finding) ||
				!strings.Contains(f.Advice, test.advice) {
				t.Errorf("got %+v", f)
			}
			if (report.Outcome == Refused) != (test.risk == Blocks) {
				t.Errorf("%s: %s", report.Outcome, report.Reason)
			}
		})
	}
}

// A kubelet that is not restarted fails no pod.
func TestInModeNRIAnInitContainerThatHoldsDevicesIsNotInTheWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newKubelet(t, kubeadm)
		m.options.Mode = ModeNRI
		m.addPod("trainer")
		m.changePod("trainer", func(pod *corev1.Pod) { pod.Spec.InitContainers = []corev1.Container{{Name: "setup"}} })
		m.write("/var/lib/kubelet/checkpoint", strings.ReplaceAll(held, `"main"`, `"setup"`))
		m.expect(m.enrol(), Done)
		m.expect(m.leave(), Done)
	})
}
