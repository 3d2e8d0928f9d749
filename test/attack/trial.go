// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/test/kube"
)

// step is a verb with its arguments, and who makes it. In a file it is an object with the verb and
// possibly "as", or the verb alone.
type step struct {
	verb      string
	as        string
	arguments json.RawMessage
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *step) UnmarshalJSON(raw []byte) error {
	if json.Unmarshal(raw, &s.verb) == nil {
		return nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return err
	}
	if as, said := fields["as"]; said {
		if err := json.Unmarshal(as, &s.as); err != nil {
			return err
		}
		delete(fields, "as")
	}
	if len(fields) != 1 {
		return fmt.Errorf("step %s has %d verbs, want one", raw, len(fields))
	}
	for s.verb, s.arguments = range fields {
	}
	return nil
}

// verb is something that steps do.
type verb struct {
	// check returns what is wrong with the arguments.
	check func(arguments json.RawMessage) error
	do    func(ctx context.Context, p *trial, arguments json.RawMessage) (Got, error)
}

// withArguments returns a verb that has arguments of some type. What do returns is what came of the
// attempt: nothing if it is not decided yet, an outcome that ends it, or that it succeeds, unless
// another step says otherwise.
func withArguments[A any](do func(ctx context.Context, p *trial, arguments A) (Got, error)) verb {
	return verb{
		check: func(raw json.RawMessage) error {
			var arguments A
			return strict(raw, &arguments)
		},
		do: func(ctx context.Context, p *trial, raw json.RawMessage) (Got, error) {
			var arguments A
			if err := strict(raw, &arguments); err != nil {
				return Got{}, err
			}
			return do(ctx, p, arguments)
		},
	}
}

// nothing are the arguments of a verb that has none.
type nothing struct{}

// trial is an attempt that is being made. The API server's refusal of a step of the attacker's ends
// it.
type trial struct {
	*Stage
	script script
	// as is who makes the step.
	as string
	// created is the pod that was created last.
	created *corev1.Pod
	// seal was forged last.
	seal    string
	clients map[string]*kube.Client
	// undo are called at the end, the last one first.
	undo []func(context.Context) error
}

// play makes all steps.
func (p *trial) play(ctx context.Context) (got Got, err error) {
	p.clients = map[string]*kube.Client{}
	err = p.prepare(ctx, p.script.Prepare)
	if err == nil {
		got, err = p.make(ctx, p.script.Steps)
	}
	ended := context.WithoutCancel(ctx)
	err = errors.Join(err, p.prepare(ended, p.script.Finally))
	for _, undo := range slices.Backward(p.undo) {
		err = errors.Join(err, undo(ended))
	}
	return got, err
}

// prepare makes steps that must not be refused.
func (p *trial) prepare(ctx context.Context, steps []step) error {
	for _, step := range steps {
		if got, err := p.step(ctx, step); err != nil {
			return err
		} else if got.Outcome != "" && got.Outcome != Succeeds {
			return fmt.Errorf("%s: %s: %s", step.verb, got.Outcome, got.Words)
		}
	}
	return nil
}

// make makes steps until one ends the attempt.
func (p *trial) make(ctx context.Context, steps []step) (last Got, err error) {
	for _, step := range steps {
		got, err := p.step(ctx, step)
		if refused, is := refusalIn(err); is && p.as != administrator {
			return refused, nil
		}
		if err != nil {
			return Got{}, err
		}
		if got.Outcome != "" {
			last = got
		}
		if got.Outcome != "" && got.Outcome != Succeeds {
			break
		}
	}
	return last, nil
}

// step makes a step.
func (p *trial) step(ctx context.Context, step step) (Got, error) {
	var err error
	if p.as, err = p.text(cmp.Or(step.as, string(p.attempt.Who))); err != nil {
		return Got{}, err
	}
	arguments, err := p.expand(step.arguments)
	if err != nil {
		return Got{}, fmt.Errorf("%s: %w", step.verb, err)
	}
	got, err := verbs()[step.verb].do(ctx, p, arguments)
	if err != nil {
		return Got{}, fmt.Errorf("%s: %w", step.verb, err)
	}
	return got, nil
}

// refusalIn returns the API server's refusal that is in an error.
func refusalIn(err error) (Got, bool) {
	for ; err != nil; err = errors.Unwrap(err) {
		if got, refused, _ := refusal(err); refused {
			return got, true
		}
	}
	return Got{}, false
}

// check returns what is wrong with a script.
func (s script) check() error {
	if len(s.Steps) == 0 {
		return errors.New("it has no steps")
	}
	names := func(raw json.RawMessage) (err error) {
		for _, match := range variable.FindAllSubmatch(raw, -1) {
			name := string(match[1])
			_, own := s.With[name]
			_, repeats := repeated(name)
			if !own && !repeats && !slices.Contains(variables, name) {
				err = errors.Join(err, fmt.Errorf("there is no variable %q", name))
			}
		}
		return err
	}
	for _, step := range slices.Concat(s.Prepare, s.Steps, s.Finally) {
		verb, known := verbs()[step.verb]
		if !known {
			return fmt.Errorf("there is no verb %q", step.verb)
		}
		if err := errors.Join(verb.check(step.arguments), names(step.arguments), names([]byte(step.as))); err != nil {
			return fmt.Errorf("%s: %w", step.verb, err)
		}
	}
	manifest, err := json.Marshal(s.Pod)
	if err != nil {
		return err
	}
	values, err := json.Marshal(s.With)
	if err != nil {
		return err
	}
	return errors.Join(yaml.UnmarshalStrict(manifest, &corev1.Pod{}), names(manifest), names(values))
}

// administrator makes steps that are none of the attacker's.
const administrator = "administrator"

// How steps name a kubelet, and another user of a group.
const (
	kubeletOf = "kubelet of "
	userOf    = "user "
)

// client returns the client of who makes the step.
func (p *trial) client(ctx context.Context) (client *kube.Client, err error) {
	if client := p.clients[p.as]; client != nil {
		return client, nil
	}
	node, isKubelet := strings.CutPrefix(p.as, kubeletOf)
	name, isUser := strings.CutPrefix(p.as, userOf)
	switch {
	case isKubelet:
		client, err = p.cluster.KubeletClient(node)
	case isUser:
		user, group, _ := strings.Cut(name, " of ")
		client, err = p.admin.As(user, group)
	case p.as == administrator:
		client, err = p.admin, p.makeNamespace(ctx)
	case p.as == string(Tenant):
		client, err = p.tenant(ctx)
	case p.as == string(Controller):
		client, err = p.controller(ctx)
	case p.as == string(Labeller):
		client, err = p.labeller(ctx)
	default:
		err = fmt.Errorf("there is no identity %q", p.as)
	}
	if err == nil {
		p.clients[p.as] = client
	}
	return client, err
}
