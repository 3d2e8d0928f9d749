// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func enrol(e *Enrolment) *Report { return e.Enrol(context.Background(), false) }

func leave(e *Enrolment) *Report { return e.Leave(context.Background(), false, false) }

// with returns the files of kubeadm with others in their place.
func with(files map[string]string) map[string]string {
	all := maps.Clone(kubeadm)
	maps.Copy(all, files)
	return all
}

// kubelets are the ways in which a kubelet may be given its endpoint.
var kubelets = map[string]map[string]string{
	"kubeadm's configuration": kubeadm,
	"a flag in kubeadm's environment file": with(map[string]string{
		"/var/lib/kubelet/config.yaml": "kind: KubeletConfiguration\n",
		"/var/lib/kubelet/kubeadm-flags.env": `KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=` + runtimeEndpoint +
			` --node-ip=10.0.0.1"` + "\n",
	}),
	"a flag in a file of the kubelet's unit": with(map[string]string{
		"/var/lib/kubelet/config.yaml": "kind: KubeletConfiguration\n",
		dropIn: "[Service]\nEnvironment=ARGS=--container-runtime-endpoint=" + runtimeEndpoint +
			"\n",
	}),
	"its default": {"/var/lib/kubelet/config.yaml": "kind: KubeletConfiguration"},
	"an empty field, as kubeadm writes it before 1.35": {
		"/var/lib/kubelet/config.yaml": "containerRuntimeEndpoint: \"\"\nkind: KubeletConfiguration\n",
	},
}

func newKubelet(t *testing.T, files map[string]string) *machine {
	m := newMachine(t, files)
	if strings.Contains(files["/var/lib/kubelet/kubeadm-flags.env"]+files[dropIn], "--container-runtime-endpoint") {
		m.flags = append(m.flags, "--container-runtime-endpoint="+runtimeEndpoint)
	}
	return m
}

func TestANodeIsEnrolledAndLeavesAsItWas(t *testing.T) {
	for name, files := range kubelets {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newKubelet(t, files)
				before := m.snapshot()
				m.expect(m.enrolment().Enrol(t.Context(), true), Planned)
				if diff := cmp.Diff(before, m.snapshot()); diff != "" {
					t.Errorf("--dry-run changes (-before +after):\n%s", diff)
				}

				m.expect(m.enrol(), Done)
				if m.endpoint() != kubecriEndpoint || !m.active["kubecri.service"] || m.restarts != 1 {
					t.Errorf("the kubelet, restarted %d times, calls %s", m.restarts, m.endpoint())
				}
				if flag := flagsOf(m.flags)[endpointFlag]; flag != "" && flag != kubecriEndpoint {
					t.Errorf("the kubelet's process has %s", flag)
				}
				after := m.snapshot()
				if !strings.Contains(after, Label) {
					t.Errorf("the node lacks the label:\n%s", after)
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
				m.expect(m.leave(), Unchanged)
			})
		})
	}
}

// TestAnEnrolmentSurvivesACrashAtAnyStep ends enrolments and leaves before each of their changes.
// From there both ways must work, and at no moment may the kubelet be pointed at a kubecri that
// does not run.
func TestAnEnrolmentSurvivesACrashAtAnyStep(t *testing.T) {
	for name, story := range map[string]struct {
		mode  Mode
		dead  bool                     // the kubelet, or kubecri as a plugin, does not come up
		begin func(*machine)           // before the run that crashes
		run   func(*Enrolment) *Report // crashes
	}{
		"of an enrolment": {run: enrol},
		"of an enrolment whose kubelet does not come up": {dead: true, run: enrol},
		"of a leave": {begin: func(m *machine) { m.expect(m.enrol(), Done) }, run: leave},

		"of an enrolment as an NRI plugin":              {mode: ModeNRI, run: enrol},
		"of an enrolment as one that is not registered": {mode: ModeNRI, dead: true, run: enrol},
		"of a leave of a node where kubecri is an NRI plugin": {
			mode: ModeNRI, begin: func(m *machine) { m.expect(m.enrol(), Done) }, run: leave,
		},
	} {
		t.Run(name, func(t *testing.T) {
			crashes := 0
			for crashed := true; crashed; crashes++ {
				synctest.Test(t, func(t *testing.T) {
					m := newKubelet(t, kubeadm)
					m.options.Mode = story.mode
					before := m.snapshot()
					if story.begin != nil {
						story.begin(m)
					}
					m.dead = story.dead
					_, crashed = m.until(crashes, story.run)
					if report := m.leave(); report.Outcome != Done && report.Outcome != Unchanged {
						t.Errorf("crash %d, then leave: %s: %s", crashes, report.Outcome, report.Reason)
					}
					if diff := cmp.Diff(before, m.snapshot()); diff != "" {
						t.Errorf("crash %d, then leave, leaves (-before +after):\n%s", crashes, diff)
					}
					m.dead = false
					m.expect(m.enrol(), Done)
				})
			}
			if crashes < 8 {
				t.Errorf("only %d crashes", crashes)
			}
		})
	}
}

func TestAnEnrolmentGoesOnAfterACrash(t *testing.T) {
	crashes := 0
	for crashed := true; crashed; crashes++ {
		synctest.Test(t, func(t *testing.T) {
			m := newKubelet(t, kubeadm)
			before := m.snapshot()
			_, crashed = m.until(crashes, enrol)
			if report := m.enrol(); report.Outcome != Done && report.Outcome != Unchanged {
				t.Errorf("crash %d, then enrol: %s: %s", crashes, report.Outcome, report.Reason)
			}
			if m.endpoint() != kubecriEndpoint || !strings.Contains(m.snapshot(), Label) {
				t.Errorf("crash %d, then enrol: %s", crashes, m.snapshot())
			}
			m.expect(m.leave(), Done)
			if diff := cmp.Diff(before, m.snapshot()); diff != "" {
				t.Errorf("crash %d: what is left (-before +after):\n%s", crashes, diff)
			}
		})
	}
}

func TestAnEnrolmentThatFailsIsUndone(t *testing.T) {
	for name, test := range map[string]struct {
		arrange func(*machine)
		want    string
	}{
		"the kubelet does not come up": {func(m *machine) { m.dead = true }, "has not reported node"},
		"the kubelet fails a pod": {func(m *machine) { m.addPod("a"); m.fails = []string{"a"} },
			"default/a (UnexpectedAdmissionError"},
		"kubecri does not serve": {func(m *machine) {
			m.kubecriErr = context.DeadlineExceeded
		}, "kubecri does not serve the runtime"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newKubelet(t, kubeadm)
				test.arrange(m)
				before, began := m.snapshot(), time.Now()
				report := m.enrol()
				m.expect(report, Undone)
				if !strings.Contains(report.Reason, test.want) || report.Changed || report.ExitCode() != 3 {
					t.Errorf("report %+v, want the reason %q", report, test.want)
				}
				if diff := cmp.Diff(before, m.snapshot()); diff != "" {
					t.Errorf("what is left (-before +after):\n%s", diff)
				}
				if took := time.Since(began); took > 90*time.Second {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// A pod of a DaemonSet comes to a node that is cordoned, too.
func TestTheStateStaysWhileAPodHoldsDevices(t *testing.T) {
	for name, test := range map[string]struct {
		granted []string
		stays   bool
	}{
		"the pod was granted devices": {[]string{"uid-daemon"}, true},
		"another one, which is gone":  {[]string{"uid-gone"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newKubelet(t, kubeadm)
				m.dead = true
				m.addPod("daemon")
				m.granted, m.keepsGrants = test.granted, true
				m.expect(m.enrol(), Undone)
				if stays := m.options.Host.exists("/var/lib/kubedevice/grants"); stays != test.stays {
					t.Errorf("the state is there: %v, want %v", stays, test.stays)
				}
			})
		})
	}
}

func TestChangesOfAdministratorsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newKubelet(t, kubeadm)
		m.expect(m.enrol(), Done)
		const config = "/var/lib/kubelet/config.yaml"
		m.write(config, m.read(config)+"maxPods: 200\n")
		m.write("/etc/kubedevice/kubecri.yaml", "mine")
		m.expect(m.enrol(), Unchanged)
		m.expect(m.leave(), Done)
		if got, want := m.read(config), kubeadm[config]+"maxPods: 200\n"; got != want {
			t.Errorf("%s has\n%swant\n%s", config, got, want)
		}
		if got := m.read("/etc/kubedevice/kubecri.yaml"); got != "mine" {
			t.Errorf("the configuration is %q", got)
		}
	})
}

// An enrolment that was cut off goes on with the files as they are then.
func TestAResumedEnrolmentKeepsChangesOfAdministrators(t *testing.T) {
	const config = "/var/lib/kubelet/config.yaml"
	crashes := 0
	for crashed := true; crashed; crashes++ {
		synctest.Test(t, func(t *testing.T) {
			m := newKubelet(t, kubeadm)
			_, crashed = m.until(crashes, enrol)
			m.write(config, m.read(config)+"maxPods: 200\n")
			m.enrol()
			if m.endpoint() != kubecriEndpoint || !strings.Contains(m.read(config), "maxPods: 200") {
				t.Errorf("crash %d: %s has\n%s", crashes, config, m.read(config))
			}
			m.expect(m.leave(), Done)
			if got, want := m.read(config), kubeadm[config]+"maxPods: 200\n"; got != want {
				t.Errorf("crash %d: %s has\n%swant\n%s", crashes, config, got, want)
			}
		})
	}
}

// The DaemonSet's pod goes with the last label, and an uninstallation waits for it to go.
func TestANodeHasTheLabelOfItsGroupFromTheFirstChangeToTheLast(t *testing.T) {
	for _, mode := range []Mode{ModeCRI, ModeNRI} {
		crashes := 0
		for crashed := true; crashed; crashes++ {
			synctest.Test(t, func(t *testing.T) {
				m := newKubelet(t, kubeadm)
				m.options.Mode, m.options.Group = mode, "gpus"
				planned := m.enrolment().Enrol(t.Context(), true)
				if planned.Steps[0].Name != "group" || !strings.Contains(planned.Steps[0].Actions[0], GroupLabel) {
					t.Errorf("mode %s: the plan begins with %+v", mode, planned.Steps[0])
				}
				before := m.snapshot()
				_, crashed = m.until(crashes, enrol)
				after := m.snapshot()
				changed := strings.ReplaceAll(after, journalPath, "") != strings.ReplaceAll(before, journalPath, "")
				if changed && crashes > 3 && !strings.Contains(after, GroupLabel+":gpus") {
					t.Errorf("mode %s, crash %d: no label on\n%s", mode, crashes, after)
				}
				m.expect(m.enrol(), map[bool]Outcome{true: Done, false: Unchanged}[crashed])
				_, _ = m.until(crashes, leave)
				m.leave()
				if diff := cmp.Diff(before, m.snapshot()); diff != "" {
					t.Errorf("mode %s, crash %d: what is left (-before +after):\n%s", mode, crashes, diff)
				}
			})
		}
	}
}

func TestEnrolmentsOfANodeAreSerialized(t *testing.T) {
	m := newKubelet(t, kubeadm)
	release, err := m.enrolment().lockJournal()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	for _, report := range []*Report{m.enrol(), m.leave()} {
		if m.expect(report, Refused); !strings.Contains(report.Reason, "wait for its end") {
			t.Errorf("reason: %s", report.Reason)
		}
	}
}

func TestAJournalThatCannotBeReadIsNotOverwritten(t *testing.T) {
	m := newKubelet(t, kubeadm)
	m.write(journalPath, "half")
	for _, report := range []*Report{m.enrol(), m.leave()} {
		if m.expect(report, Refused); !strings.Contains(report.Reason, "by hand") {
			t.Errorf("reason: %s", report.Reason)
		}
	}
	if got := m.read(journalPath); got != "half" {
		t.Errorf("the journal is %q", got)
	}
}

func TestAnEnrolmentWaitsUntilTheKubeletIsReadyAgain(t *testing.T) {
	// A heartbeat of the same second is that of the kubelet which ends.
	synctest.Test(t, func(t *testing.T) {
		m := newKubelet(t, kubeadm)
		m.dead = true
		if err := m.startKubelet(); err != nil { // with the runtime's endpoint it reports
			t.Fatal(err)
		}
		m.expect(m.enrol(), Undone)
		if !slices.ContainsFunc(m.progress, func(line string) bool { return strings.Contains(line, "is ready") }) {
			t.Errorf("progress: %q", m.progress)
		}
	})
}
