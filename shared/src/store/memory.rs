//! A tenant's lessons as they are kept: by kind, the oldest dropped first. No tenant reads another's.

use super::args::{arg, json};
use super::{Result, Store, StoreError, reply, scripts};
use crate::lesson::Lesson;
use redis::Value;
use std::collections::BTreeMap;

impl Store {
    async fn memory_call(&self, args: &[Vec<u8>]) -> Result<u64> {
        let answer = reply::array(self.call(&scripts::MEMORY, args).await?)?;
        reply::number(answer.into_iter().next().unwrap_or(Value::Nil))
    }

    /// Keeps lessons, at most `lessons_max` of the tenant; how many are new. What a person has edited or forgotten
    /// stays so.
    ///
    /// # Errors
    /// [`StoreError`]; repeatable.
    pub async fn learn(&self, tenant: &str, lessons: &[Lesson], lessons_max: usize) -> Result<u64> {
        let mut args = vec![arg("learn"), arg(tenant), arg(lessons_max)];
        for lesson in lessons {
            args.extend([arg(&lesson.id), arg(&lesson.kind), json(lesson)?]);
        }
        self.memory_call(&args).await
    }

    /// Replaces a lesson by a person's version; `false`: it is not there.
    ///
    /// # Errors
    /// [`StoreError`]; repeatable.
    pub async fn edit_lesson(&self, tenant: &str, lesson: &Lesson) -> Result<bool> {
        Ok(self.memory_call(&[arg("edit"), arg(tenant), arg(&lesson.id), json(lesson)?]).await? == 1)
    }

    /// Forgets a lesson for good; `false`: it is not there.
    ///
    /// # Errors
    /// [`StoreError`]; repeatable.
    pub async fn forget_lesson(&self, tenant: &str, id: &str) -> Result<bool> {
        Ok(self.memory_call(&[arg("forget"), arg(tenant), arg(id)]).await? == 1)
    }

    /// Forgets all that the tenant's goals taught; how many lessons.
    ///
    /// # Errors
    /// [`StoreError`]; repeatable.
    pub async fn forget_lessons(&self, tenant: &str) -> Result<u64> {
        self.memory_call(&[arg("forget"), arg(tenant), arg("*")]).await
    }

    /// The tenant's lessons of one kind, in no order.
    ///
    /// # Errors
    /// [`StoreError`] when Redis does not answer.
    pub async fn lessons(&self, tenant: &str, kind: &str) -> Result<Vec<Lesson>> {
        let key = self.keys.at(&format!("mem:{tenant}:k:{kind}"));
        let texts = reply::texts(self.command("HVALS", &[&key]).await?)?;
        Ok(texts.iter().filter_map(|text| serde_json::from_str(text).ok()).collect())
    }

    /// All lessons of the tenant, newest first.
    ///
    /// # Errors
    /// [`StoreError`] when Redis does not answer.
    pub async fn all_lessons(&self, tenant: &str) -> Result<Vec<Lesson>> {
        let by_id = self.command("HGETALL", &[&self.keys.at(&format!("mem:{tenant}"))]).await?;
        let by_id: BTreeMap<String, String> =
            redis::from_redis_value(by_id).map_err(|e| StoreError::Broken(e.to_string()))?;
        let mut kinds: Vec<String> = by_id.into_values().collect();
        kinds.sort();
        kinds.dedup();
        let mut all = vec![];
        for kind in kinds {
            all.extend(self.lessons(tenant, &kind).await?);
        }
        all.sort_by(|a, b| b.learnt_at_ms.cmp(&a.learnt_at_ms).then_with(|| a.id.cmp(&b.id)));
        Ok(all)
    }
}
