// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolments

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Result is what became of a cluster whose nodes were enrolled and left. The lists must be empty.
type Result struct {
	// Rounds is how often a node was enrolled and has left, Pods how many pods with a GPU there
	// were meanwhile, and Kills how often which program was killed.
	Rounds int          `json:"rounds"`
	Pods   int          `json:"pods"`
	Kills  programKills `json:"kills"`
	// Again is how often enrol or leave was tried again: it had refused, or taken all back.
	Again   int     `json:"again"`
	Seconds float64 `json:"seconds"`
	// ByKubelet are pods that the kubelet failed as it does without KubeDevice: it was restarted
	// while the pod's container did not run.
	ByKubelet []string `json:"failedByKubelet"`

	// SharedDevices were in two containers at the same time.
	SharedDevices []string `json:"sharedDevices"`
	// EndedContainers had run, and ended or got another process, though they were to run on.
	EndedContainers []string `json:"endedContainers"`
	// FailedPods failed otherwise.
	FailedPods []string `json:"failedPods"`
	// Refused are containers that were refused, though they were tried again.
	Refused []string `json:"refused"`
	// NotReady are nodes that were not ready in the end.
	NotReady []string `json:"notReady"`
	// ChangedFiles were not what they had been before, after the node had left.
	ChangedFiles []string `json:"changedFiles"`
}

// programKills is how often programs were killed, by name.
type programKills map[string]int

// findings are what must not be.
func (r *Result) findings() map[string][]string {
	return map[string][]string{
		"shared devices": r.SharedDevices, "ended containers": r.EndedContainers, "failed pods": r.FailedPods,
		"refused": r.Refused, "not ready": r.NotReady, "changed files": r.ChangedFiles,
	}
}

// failure is an error if anything happened that must not.
func (r *Result) failure() error {
	for name, found := range r.findings() {
		if len(found) > 0 {
			return fmt.Errorf("%s: %s", name, found[0])
		}
	}
	return nil
}

// show writes the result as people read it.
func (r *Result) show(out io.Writer) {
	say := func(format string, args ...any) { fmt.Fprintf(out, format, args...) }
	say("\n%d enrolments and leaves in %.0f s, with %d pods\n", r.Rounds, r.Seconds, r.Pods)
	for _, program := range slices.Sorted(maps.Keys(r.Kills)) {
		say("%6d  kills of %s\n", r.Kills[program], program)
	}
	say("%6d  times enrol or leave was tried again\n", r.Again)
	say("%6d  pods were failed by a kubelet that was restarted while their container did not run\n", len(r.ByKubelet))
	all := r.findings()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		say("%6d  %s\n", len(all[name]), name)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, what := range all[name] {
			say("%s: %s\n", name, what)
		}
	}
	for _, what := range r.ByKubelet {
		say("failed by the kubelet: %s\n", what)
	}
}

// save writes the result as JSON into a directory.
func (r *Result) save(directory string) error {
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(directory, "enrolments.json"), append(content, '\n'), 0o644)
}

const (
	// admissionError is why the kubelet fails a pod whose devices it cannot give now.
	admissionError = "UnexpectedAdmissionError"
	// startError is why a container ended that the runtime did not start to the end.
	startError = "StartError"
)

// judge adds to a result what became of the pods of this node.
func (s *site) judge(result *Result) error {
	starts, err := s.node.KubeletStarts()
	if err != nil {
		return err
	}
	pods := s.run.pods
	pods.mu.Lock()
	defer pods.mu.Unlock()
	for _, f := range pods.failed {
		if f.pod.Spec.NodeName != s.node.Name {
			continue
		}
		if said, byKubelet := explain(f, starts, s.run.auditor.RanAt); byKubelet {
			result.ByKubelet = append(result.ByKubelet, said)
		} else {
			result.FailedPods = append(result.FailedPods, said)
		}
	}
	for name, said := range pods.refused {
		if strings.HasPrefix(name, s.node.Name+"-") {
			result.Refused = append(result.Refused, name+": "+said)
		}
	}
	slices.Sort(result.ByKubelet)
	slices.Sort(result.FailedPods)
	slices.Sort(result.Refused)
	return nil
}

// restartTimeout is how long a kubelet may take, from its start, until it fails the pods that it
// cannot admit again, on a busy machine.
const restartTimeout = time.Minute

// explain says why a pod failed, and whether that is what a kubelet does that is restarted while no
// container of the pod runs: it admits the pod again, and fails it if the plugin of its devices has
// not registered again by then. Or the start of the container was cut off when the kubelet was
// killed, which a pod that is never started again does not survive.
func explain(f failure, kubeletStarts []time.Time, ranAt func(podUID string, at time.Time) bool) (said string,
	byKubelet bool) {
	said = fmt.Sprintf("pod %s, on its node %s: %s: %s", f.pod.Name, f.phase, f.pod.Status.Reason, f.pod.Status.Message)
	reason := f.pod.Status.Reason
	for _, container := range f.pod.Status.ContainerStatuses {
		if ended := container.State.Terminated; ended != nil {
			said += fmt.Sprintf("; its container: %s, exit code %d: %s", ended.Reason, ended.ExitCode, ended.Message)
			if ended.Reason == startError && strings.Contains(ended.Message, context.Canceled.Error()) {
				reason = startError
			}
		}
	}
	var start time.Time
	for _, at := range kubeletStarts {
		if at.Before(f.at) {
			start = at
		}
	}
	since := f.at.Sub(start)
	if reason != admissionError && reason != startError || since > restartTimeout || ranAt(string(f.pod.UID), start) {
		return said, false
	}
	return fmt.Sprintf("%s; the kubelet was started %.1f s before, when no container of the pod ran", said,
		since.Seconds()), true
}
