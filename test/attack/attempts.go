// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/test/cluster"
)

// groups has a file for each group of attempts.
//
//go:embed attempts/*.yaml
var groups embed.FS

// group is a file of attempts: a table of test/attack/README.md.
type group struct {
	// Title stands above the table.
	Title string `json:"title"`
	// Modes are those of kubecri in which the attempts are made, unless they say otherwise.
	Modes []cluster.Mode `json:"modes"`
	// Families are the attempts, in the order of the table.
	Families []family `json:"families"`
}

// family is a list of attempts with what they have in common.
type family struct {
	entry    `json:",inline"`
	Attempts []entry `json:"attempts"`
}

// entry is an attempt, or what several have in common. An attempt has each field of its family that
// it does not set. Expect, Pod and With are merged.
type entry struct {
	ID        string         `json:"id"`
	Who       Who            `json:"who"`
	What      string         `json:"what"`
	Defence   Defence        `json:"defence"`
	Modes     []cluster.Mode `json:"modes"`
	Alone     bool           `json:"alone"`
	Sample    bool           `json:"sample"`
	Neighbour bool           `json:"neighbour"`
	// Expect is what must come of the attempt where its defence is on. ExpectNRI has the settings
	// in which something else comes of it with NRI.
	Expect    expectations `json:"expect"`
	ExpectNRI expectations `json:"expect with NRI"`
	// Off is what is different where the defence is off.
	Off off `json:"without"`

	script `json:",inline"`
}

// script is what is done in an attempt.
type script struct {
	// Pod is the pod that the step "create pod" creates, as a manifest. That of an attempt is a
	// merge patch (RFC 7386) of its family's, and that of Off one of the attempt's.
	Pod map[string]any `json:"pod"`
	// With has values for the variables of the steps and the pod.
	With map[string]string `json:"with"`
	// Prepare are steps before the attempt: the API server must not refuse them.
	Prepare []step `json:"prepare"`
	// Steps are the attempt, made one after the other; see trial.
	Steps []step `json:"steps"`
	// Finally are made at the end, also when a step failed.
	Finally []step `json:"finally"`
}

// off is what is different in an attempt where its defence is off: the fields of script as an
// attempt's differ from its family's. Without steps of its own, what it prepares comes before what
// the attempt prepares; steps of its own are in the place of all of the attempt's.
type off struct {
	// How says what is different, if it is not only the setting Bare.
	How string `json:"how"`

	script `json:",inline"`
}

// expectations are what must come of an attempt, by setting.
type expectations map[Setting]Want

// More than one setting, as the files name them. A single setting comes before them, and those
// with policies before all.
const (
	always       Setting = "always"
	withPolicies Setting = "with policies"
)

// bySetting returns what must come of an attempt in each setting of which something is said. The
// text may have ${id} for the attempt's ID.
func (e expectations) bySetting(id string) (map[Setting]Want, error) {
	bySetting := map[Setting]Want{}
	for _, key := range []Setting{always, withPolicies, Both, SealsAlone, PoliciesAlone} {
		want, said := e[key]
		want.Words = strings.ReplaceAll(want.Words, "${id}", id)
		if !said {
			continue
		}
		for _, setting := range []Setting{Both, SealsAlone, PoliciesAlone} {
			if key == always || key == setting || key == withPolicies && setting.policies() {
				bySetting[setting] = want
			}
		}
	}
	for key := range e {
		if !slices.Contains([]Setting{always, withPolicies, Both, SealsAlone, PoliciesAlone}, key) {
			return nil, fmt.Errorf("expect: %q is no setting", key)
		}
	}
	return bySetting, nil
}

// load returns the attempts of a file.
func load(name string) ([]*Attempt, error) {
	content, err := groups.ReadFile(path.Join("attempts", name+".yaml"))
	if err != nil {
		return nil, err
	}
	return parse(content)
}

// parse returns the attempts of a group. It refuses what has no meaning: unknown fields, verbs and
// variables, and arguments that a verb does not have.
func parse(content []byte) (attempts []*Attempt, err error) {
	var group group
	if err := yaml.UnmarshalStrict(content, &group); err != nil {
		return nil, err
	}
	for _, family := range group.Families {
		for _, own := range family.Attempts {
			attempt, err := own.inFamily(family.entry).attempt()
			if err != nil {
				return nil, fmt.Errorf("attempt %s: %w", own.ID, err)
			}
			attempt.group = group.Title
			if attempt.Modes == nil {
				attempt.Modes = group.Modes
			}
			attempts = append(attempts, attempt)
		}
	}
	return attempts, nil
}

// inFamily returns an attempt with what it has of its family.
func (e entry) inFamily(family entry) entry {
	e.Who = cmp.Or(e.Who, family.Who)
	e.Defence = cmp.Or(e.Defence, family.Defence)
	e.Alone = e.Alone || family.Alone
	e.Sample = e.Sample || family.Sample
	e.Neighbour = e.Neighbour || family.Neighbour
	if e.Modes == nil {
		e.Modes = family.Modes
	}
	e.Expect, e.ExpectNRI = mergeMaps(family.Expect, e.Expect), mergeMaps(family.ExpectNRI, e.ExpectNRI)
	e.Off.How = cmp.Or(e.Off.How, family.Off.How)
	e.Off.script = e.Off.mergedWith(family.Off.script)
	e.script = e.mergedWith(family.script)
	return e
}

// mergedWith returns a script with what it has of another one.
func (s script) mergedWith(other script) script {
	s.Pod = merge(other.Pod, s.Pod)
	s.With = mergeMaps(other.With, s.With)
	if s.Steps == nil {
		s.Steps = other.Steps
	}
	if s.Prepare == nil {
		s.Prepare = other.Prepare
	}
	if s.Finally == nil {
		s.Finally = other.Finally
	}
	return s
}

// attempt returns the row of the table.
func (e entry) attempt() (*Attempt, error) {
	on := e.script
	without := e.Off.mergedWith(on)
	without.Prepare = e.Off.Prepare
	if e.Off.Steps == nil {
		without.Prepare = slices.Concat(e.Off.Prepare, on.Prepare)
	}
	for _, script := range []script{on, without} {
		if err := script.check(); err != nil {
			return nil, err
		}
	}
	want, err := e.Expect.bySetting(e.ID)
	if err != nil {
		return nil, err
	}
	nri, err := e.ExpectNRI.bySetting(e.ID)
	if err != nil {
		return nil, err
	}
	return &Attempt{
		ID: e.ID, Who: e.Who, What: e.What, Defence: e.Defence, Want: want, NRI: nri, Modes: e.Modes,
		Alone: e.Alone, Sample: e.Sample, Neighbour: e.Neighbour,
		Try: on.play, Off: Off{How: e.Off.How, Try: without.play},
	}, nil
}

// mergeMaps returns what two maps have together, where the second one counts.
func mergeMaps[M ~map[K]V, K comparable, V any](first, second M) M {
	all := M{}
	maps.Copy(all, first)
	maps.Copy(all, second)
	return all
}

// merge returns a merge patch (RFC 7386) of an object, which it does not change. A null stays one
// where the object has nothing to remove: another object may be patched with it.
func merge(object, patch map[string]any) map[string]any {
	if object == nil {
		return patch
	}
	merged := maps.Clone(object)
	for key, value := range patch {
		below, isObject := value.(map[string]any)
		of, wasObject := merged[key].(map[string]any)
		switch {
		case value == nil:
			delete(merged, key)
		case isObject && wasObject:
			merged[key] = merge(of, below)
		default:
			merged[key] = value
		}
	}
	return merged
}

// strict decodes JSON, and refuses fields that the value does not have.
func strict(raw json.RawMessage, value any) error {
	if len(raw) == 0 {
		return nil
	}
	return yaml.UnmarshalStrict(raw, value)
}

// play makes the steps of an attempt on a stage.
func (s script) play(ctx context.Context, stage *Stage) (Got, error) {
	return (&trial{Stage: stage, script: s}).play(ctx)
}
