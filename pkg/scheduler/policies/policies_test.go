// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/pkg/scheduler/metrics"
)

var update = flag.Bool("update", false, "add the policies of deploy/policies to releases.txt")

func guards(t *testing.T) []guard {
	t.Helper()
	all, err := shipped()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestReadsEveryPolicyFile(t *testing.T) {
	files, err := filepath.Glob("../../../deploy/policies/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, file := range files {
		want = append(want, strings.TrimSuffix(filepath.Base(file), ".yaml"))
	}
	for _, g := range guards(t) {
		got = append(got, g.policy.Name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("policies (-files +read):\n%s", diff)
	}
}

// Without the permission to read a policy, the scheduler cannot know that it is in force.
func TestSchedulerRoleMayReadEveryPolicy(t *testing.T) {
	text, err := os.ReadFile("../../../deploy/rbac/kubedevice-scheduler.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var role rbacv1.ClusterRole
	first, _, _ := strings.Cut(string(text), "\n---\n")
	if err := yaml.UnmarshalStrict([]byte(first), &role); err != nil {
		t.Fatal(err)
	}
	var readable []string
	for _, rule := range role.Rules {
		if slices.Contains(rule.APIGroups, admissionv1.GroupName) {
			readable = append(readable, rule.ResourceNames...)
		}
	}
	for _, g := range guards(t) {
		if !slices.Contains(readable, g.policy.Name) {
			t.Errorf("deploy/rbac/kubedevice-scheduler.yaml lacks the resourceName %s", g.policy.Name)
		}
	}
}

// With releases.txt, a scheduler can distinguish a policy of another release from a changed one.
func TestReleasesListsEveryPolicyContent(t *testing.T) {
	for _, g := range guards(t) {
		c := contentOf(g.policy)
		if c.isReleased(g.policy.Name) {
			continue
		}
		if !*update {
			t.Errorf("policy %s was changed: run go test ./pkg/scheduler/policies -update", g.policy.Name)
			continue
		}
		releases += g.policy.Name + " " + c.digest() + "\n"
		if err := os.WriteFile("releases.txt", []byte(releases), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRejectsFilesThatAreNoPolicies(t *testing.T) {
	const policy = "kind: ValidatingAdmissionPolicy\nmetadata: {name: a}\n"
	const binding = "kind: ValidatingAdmissionPolicyBinding\nmetadata: {name: a}\n"
	for name, test := range map[string]struct {
		files map[string]string
		want  string // part of the error, or empty
	}{
		"a policy and its binding in one file":  {files: map[string]string{"a.yaml": policy + "---\n" + binding}},
		"a policy and its binding in two files": {files: map[string]string{"a.yaml": policy, "b.yaml": binding}},
		"comments between documents": {
			files: map[string]string{"a.yaml": "# a\n---\n" + policy + "---\n" + binding},
		},
		"a file that is not YAML is not read": {files: map[string]string{"README.md": "a policy"}},
		"a policy without a binding":          {map[string]string{"a.yaml": policy}, `"a" lacks`},
		"another kind of object":              {map[string]string{"a.yaml": "kind: Pod\n"}, "a.yaml: Pod is no"},
		"a field that the API does not have": {
			map[string]string{"a.yaml": policy + "specs: {}\n"}, "unknown field",
		},
		"a document that is not an object": {map[string]string{"a.yaml": "- a\n"}, "a.yaml: "},
		"a binding of another name binds no policy": {
			map[string]string{"a.yaml": policy + "---\n" + strings.ReplaceAll(binding, "a}", "b}")}, "lacks",
		},
	} {
		t.Run(name, func(t *testing.T) {
			files := fstest.MapFS{}
			for name, text := range test.files {
				files[name] = &fstest.MapFile{Data: []byte(text)}
			}
			_, err := read(files)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

type policySpec = admissionv1.ValidatingAdmissionPolicySpec

// one is a policy with every kind of field.
func one() guard {
	meta := metav1.ObjectMeta{Name: "one"}
	rule := admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
		Rule: admissionv1.Rule{
			APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods", "pods/status"},
		},
	}}
	return guard{
		policy: &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: policySpec{
			FailurePolicy: ptr.To(admissionv1.Fail),
			MatchConstraints: &admissionv1.MatchResources{
				ResourceRules: []admissionv1.NamedRuleWithOperations{rule},
			},
			MatchConditions: []admissionv1.MatchCondition{
				{Name: "a", Expression: "1 == 1"}, {Name: "b", Expression: "true"},
			},
			Variables: []admissionv1.Variable{
				{Name: "users", Expression: "['a']"},
				{Name: "is", Expression: "request.userInfo.username in variables.users"},
			},
			Validations: []admissionv1.Validation{{Expression: "variables.is", Message: "no"}, {Expression: "true"}},
		}},
		binding: &admissionv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: meta, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: "one", ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			},
		},
	}
}

func TestReportsOnlyWeakenedPolicies(t *testing.T) {
	type policy = policySpec
	type binding = admissionv1.ValidatingAdmissionPolicyBindingSpec
	everything := &admissionv1.MatchResources{
		MatchPolicy:       ptr.To(admissionv1.Equivalent),
		NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
	}
	some := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	for name, test := range map[string]struct {
		change     func(*policy, *binding)
		want       []Reason
		text       string // part of the first problem
		customized string
	}{
		"the shipped policy": {change: func(*policy, *binding) {}},
		"defaults of the API server": {change: func(p *policy, _ *binding) {
			p.MatchConstraints.MatchPolicy = everything.MatchPolicy
			p.MatchConstraints.NamespaceSelector = everything.NamespaceSelector
			p.MatchConstraints.ObjectSelector = everything.ObjectSelector
			p.MatchConstraints.ResourceRules[0].Scope = ptr.To(admissionv1.AllScopes)
		}},
		"another order of an unordered list": {change: func(p *policy, _ *binding) {
			slices.Reverse(p.MatchConditions)
			slices.Reverse(p.Validations)
			slices.Reverse(p.MatchConstraints.ResourceRules[0].Operations)
			slices.Reverse(p.MatchConstraints.ResourceRules[0].Resources)
		}},
		"another text of a refusal": {change: func(p *policy, _ *binding) { p.Validations[0].Message = "never" }},
		"one more validation": {change: func(p *policy, _ *binding) {
			p.Validations = append(p.Validations, admissionv1.Validation{Expression: "false"})
		}},
		"a variable that no shipped expression uses": {change: func(p *policy, _ *binding) {
			p.Variables = append(p.Variables, admissionv1.Variable{Name: "more", Expression: "1"})
		}},
		"a binding that limits nothing": {change: func(_ *policy, b *binding) { b.MatchResources = everything }},
		"a binding that reports as well": {change: func(_ *policy, b *binding) {
			b.ValidationActions = append(b.ValidationActions, admissionv1.Audit)
		}},
		"more users in a list": {
			change: func(p *policy, _ *binding) {
				p.Variables[0].Expression = "['a', 'system:serviceaccount:b:c']"
			},
			customized: "users: ['a', 'system:serviceaccount:b:c']",
		},
		"a list that depends on the request": {
			change: func(p *policy, _ *binding) { p.Variables[0].Expression = "[request.userInfo.username]" },
			want:   []Reason{Variables},
			text:   `its variable "users" is [request.userInfo.username], and must be ['a']`,
		},
		"a list of two strings that are joined": {
			change: func(p *policy, _ *binding) { p.Variables[0].Expression = "['a'] + ['b']" },
			want:   []Reason{Variables},
		},
		"a condition in place of a list": {
			change: func(p *policy, _ *binding) { p.Variables[1].Expression = "['a']" }, want: []Reason{Variables},
		},
		"an action that only reports": {
			change: func(_ *policy, b *binding) { b.ValidationActions[0] = admissionv1.Audit },
			want:   []Reason{NotDenying}, text: "its binding has the validationActions [Audit], and must have Deny",
		},
		"a namespace that is left out by the binding": {
			change: func(_ *policy, b *binding) {
				b.MatchResources = &admissionv1.MatchResources{NamespaceSelector: some}
			},
			want: []Reason{Narrowed}, text: `{"namespaceSelector":{"matchLabels":{"a":"b"}}`,
		},
		"a resource that is left out by the binding": {
			change: func(p *policy, b *binding) {
				b.MatchResources = &admissionv1.MatchResources{ExcludeResourceRules: p.MatchConstraints.ResourceRules}
			},
			want: []Reason{Narrowed},
		},
		"a binding with parameters": {
			change: func(_ *policy, b *binding) { b.ParamRef = &admissionv1.ParamRef{Name: "a"} },
			want:   []Reason{Parameters}, text: `its binding has the paramRef {"name":"a"}, and must have absent`,
		},
		"a binding for another policy": {
			change: func(_ *policy, b *binding) { b.PolicyName = "two" },
			want:   []Reason{Unbound}, text: `its binding is for the policy "two"`,
		},
		"a policy with parameters": {
			change: func(p *policy, _ *binding) {
				p.ParamKind = &admissionv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
			},
			want: []Reason{Parameters},
		},
		"failures that are ignored": {
			change: func(p *policy, _ *binding) { p.FailurePolicy = ptr.To(admissionv1.Ignore) },
			want:   []Reason{FailurePolicy}, text: "its failurePolicy is Ignore, and must be Fail",
		},
		"one more condition": {
			change: func(p *policy, _ *binding) {
				p.MatchConditions = append(p.MatchConditions,
					admissionv1.MatchCondition{Name: "c", Expression: "false"})
			},
			want: []Reason{MatchConditions}, text: `its matchCondition "c", false, must not be there`,
		},
		"one condition less": {
			change: func(p *policy, _ *binding) { p.MatchConditions = p.MatchConditions[:1] },
			want:   []Reason{MatchConditions}, text: `its matchCondition "b" is missing`,
		},
		"a condition that is never true": {
			change: func(p *policy, _ *binding) { p.MatchConditions[0].Expression = "false" },
			want:   []Reason{MatchConditions},
		},
		"a resource that the policy does not match": {
			change: func(p *policy, _ *binding) {
				p.MatchConstraints.ResourceRules[0].Resources = []string{"pods"}
			},
			want: []Reason{MatchConstraints},
		},
		"a namespace that is left out by the policy": {
			change: func(p *policy, _ *binding) { p.MatchConstraints.NamespaceSelector = some },
			want:   []Reason{MatchConstraints},
		},
		"no validation": {
			change: func(p *policy, _ *binding) { p.Validations = nil },
			want:   []Reason{Validations, Validations}, text: "the validation true is missing",
		},
		"a validation that is always true": {
			change: func(p *policy, _ *binding) { p.Validations[0].Expression = "true" },
			want:   []Reason{Validations}, text: "the validation variables.is is missing",
		},
		"several at once": {
			change: func(p *policy, b *binding) { p.Validations, b.ValidationActions = p.Validations[:1], nil },
			want:   []Reason{Validations, NotDenying},
		},
	} {
		t.Run(name, func(t *testing.T) {
			installed := one()
			test.change(&installed.policy.Spec, &installed.binding.Spec)
			problems, customized := compare(one(), installed.policy, installed.binding)
			var reasons []Reason
			for _, p := range problems {
				reasons = append(reasons, p.reason)
			}
			if diff := cmp.Diff(test.want, reasons); diff != "" {
				t.Errorf("problems (-want +got):\n%s\n%v", diff, problems)
			}
			if test.text != "" && !strings.Contains(problems[0].text, test.text) {
				t.Errorf("the problem is %q, want %q", problems[0].text, test.text)
			}
			if got := strings.Join(customized, ""); got != test.customized {
				t.Errorf("customized is %q, want %q", got, test.customized)
			}
		})
	}
}

func TestPolicyOfAnotherReleaseIsOutdated(t *testing.T) {
	before := one()
	before.policy.Spec.Validations = before.policy.Spec.Validations[:1]
	saved := releases
	defer func() { releases = saved }()
	releases = "other " + contentOf(before.policy).digest() + "\n"
	problems, _ := compare(one(), before.policy, before.binding)
	if len(problems) != 1 || problems[0].reason != Validations {
		t.Errorf("a policy that no release had: %v", problems)
	}
	releases += "one " + contentOf(before.policy).digest() + "\n"
	problems, _ = compare(one(), before.policy, before.binding)
	if len(problems) != 1 || problems[0].reason != Outdated {
		t.Fatalf("problems %v, want that it is outdated", problems)
	}
	step := Problem{"one", problems[0].reason, problems[0].text}.NextStep()
	if !strings.Contains(step, "apply deploy/policies of this release") {
		t.Errorf("the next step is %q", step)
	}
}

// deploy/policies alone would forbid a scheduler that is not kube-scheduler's user to write
// allocations.
func TestNextStepCoversEachKindOfInstallation(t *testing.T) {
	for _, reason := range []Reason{Missing, Unbound, Outdated, Narrowed, Variables, Validations} {
		step := Problem{"one", reason, ""}.NextStep()
		for _, want := range []string{
			"kubectl apply -f deploy/policies", "kubectl apply -k deploy/second-scheduler",
			"helm upgrade --reuse-values",
		} {
			if !strings.Contains(step, want) {
				t.Errorf("%s: the next step is %q, want %q in it", reason, step, want)
			}
		}
		if strings.Contains(step, "replace") {
			t.Errorf("%s: the next step is %q, which revokes other schedulers' rights", reason, step)
		}
	}
}

func TestCountsMissingPolicies(t *testing.T) {
	metrics.Register()
	const untouched = -1
	var all []runtime.Object
	for _, g := range guards(t) {
		all = append(all, g.policy, g.binding)
	}
	weakened := guards(t)[0]
	weakened.binding.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn}
	for name, test := range map[string]struct {
		installed []runtime.Object
		forbidden bool
		missing   int
		problems  map[Reason]float64 // of the first policy
	}{
		"none is installed": {
			missing: len(guards(t)), problems: map[Reason]float64{Missing: 1, Unbound: 1},
		},
		"all are installed": {installed: all},
		"one is not bound": {
			installed: slices.Delete(slices.Clone(all), 1, 2), missing: 1, problems: map[Reason]float64{Unbound: 1},
		},
		"one is bound but missing": {installed: all[1:], missing: 1, problems: map[Reason]float64{Missing: 1}},
		"one does not deny": {
			installed: append([]runtime.Object{weakened.policy, weakened.binding}, all[2:]...),
			problems:  map[Reason]float64{NotDenying: 1},
		},
		"the scheduler may not see it": {
			installed: all, forbidden: true, missing: len(guards(t)), problems: map[Reason]float64{Unknown: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(test.installed...)
			if test.forbidden {
				client.PrependReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no"))
				})
			}
			metrics.PoliciesMissing.Set(untouched)
			metrics.PolicyProblems.WithLabelValues("gone", string(Missing)).Set(1)
			report, err := Check(t.Context(), client)
			if err != nil {
				t.Fatal(err)
			}
			report.publish(t.Context())
			got, err := testutil.GetGaugeMetricValue(metrics.PoliciesMissing)
			if err != nil || got != float64(test.missing) {
				t.Errorf("missing are %v, error %v, want %v", got, err, test.missing)
			}
			name := guards(t)[0].policy.Name
			for _, reason := range []Reason{Missing, Unbound, NotDenying, Unknown} {
				got, err := testutil.GetGaugeMetricValue(metrics.PolicyProblems.WithLabelValues(name, string(reason)))
				if err != nil || got != test.problems[reason] {
					t.Errorf("%s of %s is %v, error %v, want %v", reason, name, got, err, test.problems[reason])
				}
			}
			got, err = testutil.GetGaugeMetricValue(metrics.PolicyProblems.WithLabelValues("gone", string(Missing)))
			if err != nil || got != 0 {
				t.Errorf("a problem that is solved still counts: %v, %v", got, err)
			}
		})
	}
}

func TestCheckEndsWithItsContext(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewInternalError(errors.New("no"))
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Check(ctx, client); err == nil {
		t.Error("there is a report of policies that the client cannot read")
	}
}
