// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"
)

// policy is a shipped ValidatingAdmissionPolicy, compiled the way the API server compiles it.
type policy struct {
	spec      admissionv1.ValidatingAdmissionPolicySpec
	validator validating.Validator
}

// readPolicy reads a policy from deploy/policies or deploy/policies-optional, with its binding, and
// checks that it is enforced. changed are the expressions that an administrator has put in the
// place of those of the file, by name.
func readPolicy(tb testing.TB, name string, changed ...map[string]string) *policy {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "deploy", "policies*", name+".yaml"))
	if err != nil || len(files) != 1 {
		tb.Fatalf("policy %q is in the files %q (%v)", name, files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		tb.Fatal(err)
	}
	var shipped admissionv1.ValidatingAdmissionPolicy
	var binding admissionv1.ValidatingAdmissionPolicyBinding
	first, second, _ := strings.Cut(string(text), "\n---\n")
	for document, to := range map[string]any{first: &shipped, second: &binding} {
		if err := yaml.UnmarshalStrict([]byte(document), to); err != nil {
			tb.Fatal(err)
		}
	}
	if shipped.Name != name || *shipped.Spec.FailurePolicy != admissionv1.Fail {
		tb.Fatalf("the file of policy %q has policy %q with failure policy %s",
			name, shipped.Name, *shipped.Spec.FailurePolicy)
	}
	if binding.Spec.PolicyName != name ||
		!slices.Equal(binding.Spec.ValidationActions, []admissionv1.ValidationAction{admissionv1.Deny}) {
		tb.Fatalf("policy %q is bound as %q with actions %q",
			name, binding.Spec.PolicyName, binding.Spec.ValidationActions)
	}
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		tb.Fatal(err)
	}
	vars := cel.OptionalVariableDeclarations{HasAuthorizer: true}
	var variables []cel.NamedExpressionAccessor
	for _, v := range shipped.Spec.Variables {
		for _, expressions := range changed {
			v.Expression = cmp.Or(expressions[v.Name], v.Expression)
		}
		variables = append(variables, &validating.Variable{Name: v.Name, Expression: v.Expression})
	}
	compiler.CompileAndStoreVariables(variables, vars, environment.NewExpressions)
	var conditions, validations, messages []cel.ExpressionAccessor
	for _, c := range shipped.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&c))
	}
	for _, v := range shipped.Spec.Validations {
		validations = append(validations,
			&validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason})
		messages = append(messages, &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression})
	}
	compile := func(
		expressions []cel.ExpressionAccessor, vars cel.OptionalVariableDeclarations,
	) cel.ConditionEvaluator {
		condition := compiler.CompileCondition(expressions, vars, environment.NewExpressions)
		for _, err := range condition.CompilationErrors() {
			tb.Fatalf("policy %s: %v", name, err)
		}
		return condition
	}
	matcher := matchconditions.NewMatcher(compile(conditions, vars), shipped.Spec.FailurePolicy, "policy", "validate",
		name)
	return &policy{
		spec: shipped.Spec,
		validator: validating.NewValidator(compile(validations, vars), matcher, compile(nil, vars),
			compile(messages, cel.OptionalVariableDeclarations{}), shipped.Spec.FailurePolicy, nil),
	}
}

// request is one request to the API server.
type request struct {
	user        string
	groups      []string
	resource    string // with the subresource: pods/status
	object, old runtime.Object
	// namespace are the annotations of the object's namespace.
	namespace map[string]string
	// mayDelete says that the user may delete the object.
	mayDelete bool
}

// refusal returns why the policy refuses a request, or "" when it admits it.
func (p *policy) refusal(tb testing.TB, r request) string {
	tb.Helper()
	operation := admission.Create
	if r.old != nil {
		operation = admission.Update
	}
	if !p.matches(operation, r.resource) {
		return ""
	}
	accessor := r.object.(metav1.Object)
	resource, subresource, _ := strings.Cut(r.resource, "/")
	kind := r.object.GetObjectKind().GroupVersionKind()
	attributes := admission.NewAttributesRecord(r.object, r.old, kind, accessor.GetNamespace(), accessor.GetName(),
		schema.GroupVersionResource{Version: "v1", Resource: resource}, subresource, operation, nil, false,
		&user.DefaultInfo{Name: r.user, Groups: r.groups})
	versioned := &admission.VersionedAttributes{Attributes: attributes, VersionedKind: kind}
	versioned.VersionedObject.Set(r.object)
	if r.old != nil {
		versioned.VersionedOldObject.Set(r.old)
	}
	result := p.validator.Validate(tb.Context(), attributes.GetResource(), versioned, nil,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Annotations: r.namespace}},
		celconfig.RuntimeCELCostBudget, authorizer.AuthorizerFunc(func(_ context.Context,
			attributes authorizer.Attributes) (authorizer.Decision, string, error) {
			if r.mayDelete && attributes.GetVerb() == "delete" && attributes.GetResource() == resource &&
				attributes.GetName() == accessor.GetName() {
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionNoOpinion, "", nil
		}))
	for _, decision := range result.Decisions {
		if decision.Evaluation == validating.EvalError {
			return "error: " + decision.Message
		}
		if decision.Action == validating.ActionDeny {
			return decision.Message
		}
	}
	return ""
}

// matches reports whether the policy's constraints select a request.
func (p *policy) matches(operation admission.Operation, resource string) bool {
	for _, rule := range p.spec.MatchConstraints.ResourceRules {
		for _, op := range rule.Operations {
			for _, res := range rule.Resources {
				if string(op) == string(operation) && res == resource {
					return true
				}
			}
		}
	}
	return false
}
