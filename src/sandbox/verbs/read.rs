//! get and list.

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use futures::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

use crate::sandbox::object::Object;
use crate::sandbox::query::{ListOptions, RvMatch};
use crate::sandbox::resources::Resource;
use crate::sandbox::selector::{FieldMatcher, LabelSelector};
use crate::sandbox::serve::{Answer, Call, Cut};
use crate::sandbox::status::ApiError;
use crate::sandbox::store::{Expired, Range};
use crate::sandbox::{Inner, convert};

/// Objects put into one frame of a long list.
const FRAME_OBJECTS: usize = 256;

impl Inner {
    pub(in crate::sandbox) fn get(&self, call: &Call) -> Result<Answer, ApiError> {
        let object = self
            .store
            .get(&call.res.table, &call.key())
            .ok_or_else(|| ApiError::not_found(&call.res, &call.path.name))?;
        Ok(Answer::Bytes(200, convert::render(&call.res, &object)))
    }

    pub(in crate::sandbox) fn list(&self, call: &Call) -> Result<Answer, ApiError> {
        let options = ListOptions::parse(&call.query)?;
        let fields = matcher(&call.res, &options)?;
        let token = options
            .continue_token
            .as_deref()
            .map(Token::parse)
            .transpose()?;
        let now = self.store.rv();
        let at = match (&token, options.rv) {
            (Some(token), _) => {
                // The key must lie in what is listed: a token of another namespace is no way in.
                Some(token.rv)
            }
            (None, Some(rv)) if rv > now => return Err(ApiError::rv_too_large(rv, now)),
            (None, Some(rv)) if rv > 0 => {
                let exact = options.rv_match == RvMatch::Exact
                    || (options.rv_match == RvMatch::Unset && options.limit > 0);
                exact.then_some(rv)
            }
            _ => None,
        };
        let range = Range {
            namespace: &call.path.namespace,
            after: token.as_ref().map(|t| t.key.as_str()),
            at,
            limit: options.limit,
            remaining: token.as_ref().map(|t| t.remaining),
        };
        let page = self
            .store
            .page(&call.res.table, range, |o| {
                options.labels.matches(o) && fields.matches(o)
            })
            .map_err(|Expired { oldest }| match &token {
                Some(_) => ApiError::continue_expired(),
                None => ApiError::expired(at.unwrap_or_default(), oldest),
            })?;

        let mut head = format!(
            "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{{\"resourceVersion\":\"{}\"",
            quoted(&call.res.list_kind),
            quoted(&call.res.api_version()),
            page.rv
        );
        if let Some(key) = &page.next {
            let token = Token {
                rv: page.rv,
                remaining: page.remaining,
                key: key.to_string(),
            }
            .to_text();
            let _ = write!(head, ",\"continue\":\"{token}\"");
            // With a selector nobody knows how many of the rest it selects.
            if options.labels.is_empty() && options.fields.is_empty() {
                let _ = write!(head, ",\"remainingItemCount\":{}", page.remaining);
            }
        }
        if call.res.custom && page.next.is_none() {
            head.push_str(",\"continue\":\"\"");
        }
        head.push_str("},\"items\":[");
        Ok(list_body(&call.res, head, page.objects))
    }
}

/// The field selector bound to the kind.
pub(in crate::sandbox) fn matcher(
    res: &Resource,
    options: &ListOptions,
) -> Result<FieldMatcher, ApiError> {
    options
        .fields
        .resolve(res.fields, res.group == "events.k8s.io")
}

/// Whether both selectors select the object.
pub(in crate::sandbox) fn selected(
    labels: &LabelSelector,
    fields: &FieldMatcher,
    object: &Object,
) -> bool {
    labels.matches(object) && fields.matches(object)
}

fn quoted(text: &str) -> serde_json::Value {
    text.into()
}

/// Streams the list frame by frame, so that a list of everything is never one buffer.
fn list_body(res: &Arc<Resource>, head: String, objects: Vec<Arc<Object>>) -> Answer {
    let prefix = typed_prefix(res);
    let short = objects.len() <= FRAME_OBJECTS * 4;
    let res = res.clone();
    let frame = move |objects: &[Arc<Object>], first: bool, out: &mut BytesMut| {
        for (index, object) in objects.iter().enumerate() {
            if !(first && index == 0) {
                out.put_u8(b',');
            }
            let json = convert::render(&res, object);
            // Items of a built-in list carry no kind and apiVersion, as in the real server.
            match prefix
                .as_ref()
                .and_then(|p| json.strip_prefix(p.as_slice()))
            {
                Some(rest) => {
                    out.put_u8(b'{');
                    out.put_slice(rest);
                }
                None => out.put_slice(&json),
            }
        }
    };
    if short {
        let bytes: usize = objects.iter().map(|o| o.json.len() + 1).sum();
        let mut out = BytesMut::with_capacity(head.len() + bytes + 4);
        out.put_slice(head.as_bytes());
        frame(&objects, true, &mut out);
        out.put_slice(b"]}\n");
        return Answer::Bytes(200, out.freeze());
    }
    let frames = stream::unfold((0, Some(head)), move |(at, head)| {
        let mut out = BytesMut::new();
        let first = head.is_some();
        if let Some(head) = head {
            out.put_slice(head.as_bytes());
        } else if at >= objects.len() {
            return std::future::ready(None);
        }
        let end = (at + FRAME_OBJECTS).min(objects.len());
        frame(objects.get(at..end).unwrap_or_default(), first, &mut out);
        if end == objects.len() {
            out.put_slice(b"]}\n");
        }
        std::future::ready(Some((Ok::<_, Cut>(Frame::data(out.freeze())), (end, None))))
    });
    Answer::Stream(StreamBody::new(frames).boxed_unsync())
}

/// How stored JSON of a built-in kind begins, up to the first member that a list item keeps.
fn typed_prefix(res: &Resource) -> Option<Vec<u8>> {
    if res.custom {
        return None;
    }
    let text = format!(
        "{{\"apiVersion\":{},\"kind\":{},",
        quoted(&res.api_version()),
        quoted(&res.kind)
    );
    Some(text.into_bytes())
}

/// Where a list goes on.
struct Token {
    rv: u64,
    remaining: usize,
    key: String,
}

impl Token {
    fn to_text(&self) -> String {
        let mut text = format!("{}.{}.", self.rv, self.remaining);
        for byte in self.key.bytes() {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }

    fn parse(text: &str) -> Result<Self, ApiError> {
        let read = || {
            let mut parts = text.splitn(3, '.');
            let rv = parts.next()?.parse().ok()?;
            let remaining = parts.next()?.parse().ok()?;
            let hex = parts.next()?;
            if hex.is_empty() || hex.len() % 2 != 0 {
                return None;
            }
            let bytes: Option<Vec<u8>> = (0..hex.len())
                .step_by(2)
                .map(|i| u8::from_str_radix(hex.get(i..i + 2)?, 16).ok())
                .collect();
            Some(Token {
                rv,
                remaining,
                key: String::from_utf8(bytes?).ok()?,
            })
        };
        read().ok_or_else(|| ApiError::bad_request("continue key is not valid: invalid token"))
    }
}
