//! From an HTTP request to an answer: who asks, may they, what is addressed, which verb.

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use serde_json::Value;

use super::access::{Caller, User};
use super::audit::AuditEntry;
use super::faults::{Asked, CONTROL_PATH, Met};
use super::path::{ResourcePath, Target};
use super::query::Query;
use super::resources::Resource;
use super::status::ApiError;
use super::{Inner, discovery};

/// The body of every answer.
pub(super) type Body = UnsyncBoxBody<Bytes, Cut>;

/// The connection breaks: before the answer, or in the middle of it.
#[derive(Debug, thiserror::Error)]
#[error("the embedded cluster broke the connection, as a fault asked for it to")]
pub(super) struct Cut;

/// Largest request body, as kube-apiserver's `--max-request-body-bytes`.
const BODY_LIMIT_BYTES: usize = 3 * 1024 * 1024;
/// How much of a longer one is read before the connection is given up.
const DRAIN_LIMIT_BYTES: usize = 32 * 1024 * 1024;

/// What a handler answers with.
pub(super) enum Answer {
    /// An object that is JSON already.
    Bytes(u16, Bytes),
    /// An object.
    Value(u16, Value),
    /// A stream of JSON: a watch or a long list.
    Stream(Body),
    /// Plain text.
    Text(&'static str),
    /// Nothing: 204.
    NoContent,
    /// Plain text, as it comes.
    Log(Body),
    /// What a pod's port answered.
    Port(super::PortAnswer),
    /// The connection becomes a WebSocket of this subprotocol.
    Upgrade {
        protocol: &'static str,
        accept: String,
    },
    /// JSON under a media type of its own.
    Typed(&'static str, Value),
}

/// A request on a resource, taken apart.
pub(super) struct Call {
    pub(super) res: Arc<Resource>,
    pub(super) path: ResourcePath,
    pub(super) query: Query,
    pub(super) user: User,
    pub(super) content_type: String,
    pub(super) body: Bytes,
}

impl Call {
    /// The body as a JSON value, whatever it was sent as.
    pub(super) fn json(&self) -> Result<Value, ApiError> {
        let value = super::body::decode(&self.content_type, &self.body, &self.res.kind)?;
        super::body::check_depth(&self.res, &self.body)?;
        Ok(value)
    }

    /// The store key of the addressed object.
    pub(super) fn key(&self) -> String {
        self.res.key(&self.path.namespace, &self.path.name)
    }

    /// The same caller's call on another kind in `namespace`, with no body.
    pub(super) fn inside(&self, res: Arc<Resource>, namespace: &str) -> Call {
        let path = ResourcePath {
            group: res.group.clone(),
            version: res.version.clone(),
            namespace: namespace.to_owned(),
            plural: res.plural.clone(),
            ..ResourcePath::default()
        };
        Call {
            res,
            path,
            query: Query::default(),
            user: self.user.clone(),
            content_type: String::new(),
            body: Bytes::new(),
        }
    }

    /// Whether the write is only to be tried.
    pub(super) fn dry_run(&self, options: &str) -> Result<bool, ApiError> {
        self.query.dry_run(options)
    }
}

/// A client whose requests run right here, as `user`.
pub(super) fn in_process(inner: Arc<Inner>, user: User) -> kube::Client {
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let inner = inner.clone();
        let caller = Caller::Known(user.clone());
        async move { respond(inner, request, caller).await }
    });
    kube::Client::new(service, "default")
}

/// Answers one request.
pub(super) async fn respond<B>(
    inner: Arc<Inner>,
    request: Request<B>,
    caller: Caller,
) -> Result<Response<Body>, Cut>
where
    B: http_body::Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (parts, body) = request.into_parts();
    let uri = parts
        .uri
        .path_and_query()
        .map_or_else(String::new, ToString::to_string);
    let mut entry = AuditEntry {
        verb: parts.method.as_str().to_lowercase(),
        user: String::new(),
        group: String::new(),
        version: String::new(),
        resource: String::new(),
        namespace: String::new(),
        name: String::new(),
        subresource: String::new(),
        code: 0,
        uri: super::status::clip(&uri),
        at: String::new(),
    };
    let bodiless = parts.method == Method::HEAD;
    let answer = route(&inner, parts, body, caller, &mut entry).await;
    let mut response = match answer {
        Ok(answer) => render(answer),
        Err(Met::Refused(error)) => render_error(&error),
        Err(Met::Cut) => return Err(Cut),
    };
    if bodiless {
        *response.body_mut() = full(Bytes::new());
    }
    entry.code = response.status().as_u16();
    entry.at = inner.options.clock.micro_time();
    inner.audit.record(entry);
    Ok(response)
}

async fn route<B>(
    inner: &Arc<Inner>,
    mut parts: http::request::Parts,
    body: B,
    caller: Caller,
    entry: &mut AuditEntry,
) -> Result<Answer, Met>
where
    B: http_body::Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let user = inner.authenticate(&caller, &parts.headers)?;
    entry.user = user.name.clone();
    let path = parts.uri.path();
    if path == CONTROL_PATH {
        let sent = read_body(body).await?;
        let (code, value) = inner.control_faults(&user, &parts.method, &sent)?;
        return Ok(Answer::Value(code, value));
    }
    let Some(target) = Target::parse(path) else {
        return Err(ApiError::bad_request("invalid URL escape in the path").into());
    };
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    inner
        .faults
        .meet(asked(&parts.method, &target, &query))
        .await?;
    let Target::Resource(path) = target else {
        let verb = parts.method.as_str().to_lowercase();
        inner.authorize_path(&user, &verb, path)?;
        if !matches!(parts.method, Method::GET | Method::HEAD) {
            return Err(ApiError::method_not_allowed().into());
        }
        return Ok(discovery::answer(inner, &target, &parts.headers)?);
    };

    let verb = verb(&parts.method, &path, &query);
    entry.verb = verb.to_owned();
    entry.group = path.group.clone();
    entry.version = path.version.clone();
    entry.resource = path.plural.clone();
    entry.namespace = path.namespace.clone();
    entry.name = super::status::clip(&path.name);
    entry.subresource = super::status::clip(&path.subresource);
    // Permission comes before existence: who may not look learns nothing.
    inner.authorize(&user, verb, &path)?;

    let registry = inner.registry();
    let Some(res) = registry.find(&path.group, &path.version, &path.plural) else {
        return Err(if registry.has_group(&path.group) {
            ApiError::no_such_resource()
        } else {
            ApiError::no_such_path()
        }
        .into());
    };
    if parts.method == Method::HEAD {
        return Err(ApiError::method_not_allowed().into());
    }
    let misplaced = if res.namespaced {
        path.namespace.is_empty() && !path.name.is_empty()
    } else {
        !path.namespace.is_empty()
    };
    if misplaced {
        return Err(ApiError::no_such_resource().into());
    }
    if let Some(problem) = super::meta::path_segment_problem(&path.name) {
        return Err(ApiError::bad_request(format!(
            "Name parameter invalid: {:?}: {problem}",
            super::status::clip(&path.name)
        ))
        .into());
    }
    let table = super::tables::wanted(&parts.headers, &query)?;
    if !accepts_json(&parts.headers) {
        return Err(ApiError::not_acceptable().into());
    }
    let content_type = media_type(&parts.headers, &header::CONTENT_TYPE);
    let body = if matches!(parts.method, Method::GET | Method::HEAD) {
        Bytes::new()
    } else {
        read_body(body).await?
    };
    let call = Call {
        res,
        path,
        query,
        user,
        content_type,
        body,
    };
    if call.path.subresource == "exec" && call.res.is("", "pods") {
        if !matches!(verb, "get" | "create") {
            return Err(ApiError::method_not_allowed().into());
        }
        return Ok(inner.exec(&call, &parts.headers, &mut parts.extensions)?);
    }
    if matches!(verb, "list" | "watch") {
        inner.holds.over().await;
    }
    let answer = inner.dispatch(verb, &call)?;
    let plain = call.path.subresource.is_empty();
    Ok(match table {
        Some(table) if plain && matches!(verb, "get" | "list" | "watch") => {
            super::tables::tabled(table, &call.res, inner.options.clock.now(), verb, answer).await
        }
        _ => answer,
    })
}

/// What faults ask of a request.
fn asked<'a>(method: &Method, target: &'a Target, query: &Query) -> Asked<'a> {
    let Target::Resource(path) = target else {
        return Asked {
            verb: "get",
            resource: "",
            continues: false,
            changes: false,
        };
    };
    let verb = verb(method, path, query);
    let changes = matches!(verb, "update" | "patch" | "delete")
        || (verb == "create" && !path.subresource.is_empty());
    Asked {
        verb,
        resource: &path.plural,
        continues: query.get("continue").is_some_and(|token| !token.is_empty()),
        changes,
    }
}

/// The API verb of a method on a path.
fn verb(method: &Method, path: &ResourcePath, query: &Query) -> &'static str {
    let one = !path.name.is_empty();
    match *method {
        Method::GET | Method::HEAD if one => "get",
        Method::GET | Method::HEAD if query.flag("watch") => "watch",
        Method::GET | Method::HEAD => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if one => "delete",
        Method::DELETE => "deletecollection",
        _ => "",
    }
}

impl Inner {
    fn dispatch(self: &Arc<Self>, verb: &str, call: &Call) -> Result<Answer, ApiError> {
        let one = !call.path.name.is_empty();
        if call.res.review {
            return if verb == "create" && !one {
                self.create_review(call)
            } else {
                Err(ApiError::method_not_allowed())
            };
        }
        let sub = call.path.subresource.as_str();
        if !sub.is_empty() {
            return self.dispatch_subresource(verb, sub, call);
        }
        match verb {
            "get" => self.get(call),
            "list" => self.list(call),
            "watch" => self.watch(call),
            "create" if !one => self.create(call),
            "update" if one => self.update(call, verbs_part("")),
            "patch" if one && call.content_type == super::verbs::APPLY => {
                self.apply(call, verbs_part(""))
            }
            "patch" if one => self.patch(call, verbs_part("")),
            "delete" => self.delete(call),
            "deletecollection" => self.delete_collection(call),
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    fn dispatch_subresource(
        self: &Arc<Self>,
        verb: &str,
        sub: &str,
        call: &Call,
    ) -> Result<Answer, ApiError> {
        let pods = call.res.is("", "pods");
        match (sub, verb) {
            ("binding", "create") if pods => self.bind(call),
            ("eviction", "create") if pods => self.evict(call),
            ("binding" | "eviction", _) if pods => Err(ApiError::method_not_allowed()),
            ("log", "get") if pods => self.pod_log(call),
            ("proxy", "get") if pods => self.proxy(call),
            ("log", _) if pods => Err(ApiError::method_not_allowed()),
            ("attach" | "portforward", "get" | "create") if pods => self.not_connected(call),
            ("attach" | "portforward", _) if pods => Err(ApiError::method_not_allowed()),
            ("proxy" | "ephemeralcontainers" | "resize", _) if pods => {
                if !self.store.contains(&call.res.table, &call.key()) {
                    return Err(ApiError::not_found(&call.res, &call.path.name));
                }
                Err(ApiError::not_implemented(format!(
                    "pods/{sub} is not served by the embedded cluster"
                )))
            }
            ("scale", _) if super::verbs::has_scale(&call.res) => self.scale(verb, call),
            ("status", _) if call.res.status != super::resources::StatusRule::None => match verb {
                "get" => self.get(call),
                "update" => self.update(call, verbs_part("status")),
                "patch" if call.content_type == super::verbs::APPLY => {
                    self.apply(call, verbs_part("status"))
                }
                "patch" => self.patch(call, verbs_part("status")),
                _ => Err(ApiError::method_not_allowed()),
            },
            _ => Err(ApiError::no_such_resource()),
        }
    }
}

fn verbs_part(sub: &str) -> super::verbs::Part {
    if sub == "status" {
        super::verbs::Part::Status
    } else {
        super::verbs::Part::Main
    }
}

/// Reads the body. One that is too long is read on for a while and thrown away: closing at once
/// would take the answer from a client that is still sending.
async fn read_body<B>(body: B) -> Result<Bytes, ApiError>
where
    B: http_body::Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut body = std::pin::pin!(body);
    let mut taken = BytesMut::new();
    let mut seen = 0_usize;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            ApiError::bad_request(format!("cannot read the body: {}", error.into()))
        })?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        seen = seen.saturating_add(data.remaining());
        if seen <= BODY_LIMIT_BYTES {
            taken.put(data);
        } else if seen > DRAIN_LIMIT_BYTES {
            break;
        }
    }
    if seen > BODY_LIMIT_BYTES {
        Err(ApiError::too_large(BODY_LIMIT_BYTES))
    } else {
        Ok(taken.freeze())
    }
}

/// A header's media type without its parameters, in lower case.
fn media_type(headers: &HeaderMap, name: &header::HeaderName) -> String {
    let text = headers
        .get(name)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    text.split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
}

/// Whether the client takes JSON.
fn accepts_json(headers: &HeaderMap) -> bool {
    let Some(accept) = headers.get(header::ACCEPT) else {
        return true;
    };
    let Ok(accept) = accept.to_str() else {
        return false;
    };
    accept.split(',').any(|part| {
        let media = part
            .split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .to_ascii_lowercase();
        matches!(
            media.as_str(),
            "" | "*/*" | "application/*" | "application/json"
        )
    })
}

fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

fn build(code: u16, media: &str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Ok(media) = header::HeaderValue::from_str(media) {
        response.headers_mut().insert(header::CONTENT_TYPE, media);
    }
    response.headers_mut().insert(
        header::CACHE_CONTROL,
        header::HeaderValue::from_static("no-cache, private"),
    );
    response
}

fn render(answer: Answer) -> Response<Body> {
    const JSON: &str = "application/json";
    match answer {
        Answer::Bytes(code, bytes) => build(code, JSON, full(bytes)),
        Answer::Value(code, value) => build(code, JSON, full(value.to_string())),
        Answer::Stream(body) => build(200, JSON, body),
        Answer::Text(text) => build(200, "text/plain; charset=utf-8", full(text)),
        Answer::NoContent => {
            let mut response = build(204, "", full(Bytes::new()));
            response.headers_mut().remove(header::CONTENT_TYPE);
            response
        }
        Answer::Log(body) => build(200, "text/plain", body),
        Answer::Port(answer) => build(answer.code, answer.content_type, full(answer.body)),
        Answer::Upgrade { protocol, accept } => upgraded(protocol, &accept),
        Answer::Typed(media, value) => build(200, media, full(value.to_string())),
    }
}

/// 101: from here on the connection is a WebSocket.
fn upgraded(protocol: &'static str, accept: &str) -> Response<Body> {
    use header::HeaderValue;
    let mut response = build(101, "", full(Bytes::new()));
    let headers = response.headers_mut();
    headers.clear();
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(
        header::SEC_WEBSOCKET_PROTOCOL,
        HeaderValue::from_static(protocol),
    );
    if let Ok(accept) = HeaderValue::from_str(accept) {
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    }
    response
}

/// The answer for an error, also used before a request can be read.
pub(super) fn render_error(error: &ApiError) -> Response<Body> {
    let mut response = if error.plain {
        build(
            error.code,
            "text/plain; charset=utf-8",
            full(error.message.clone()),
        )
    } else {
        build(
            error.code,
            "application/json",
            full(error.to_value().to_string()),
        )
    };
    if let Some(secs) = error.retry_after_secs {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, secs.into());
    }
    response
}
